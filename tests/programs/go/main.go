// SPDX-License-Identifier: MIT OR Apache-2.0

// A garbage-collected program with many goroutines: memory, timers, a pipe, preemption by signals,
// a nil pointer that becomes a panic.
package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strings"
	"sync"
	"time"
)

type node struct {
	left, right *node
	value       int
}

func tree(depth int) *node {
	if depth == 0 {
		return &node{value: 1}
	}
	return &node{tree(depth - 1), tree(depth - 1), depth}
}

func (n *node) sum() int {
	if n == nil {
		return 0
	}
	return n.value + n.left.sum() + n.right.sum()
}

func main() {
	var wg sync.WaitGroup
	results := make(chan int, 100)
	for i := 0; i < 200; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			results <- tree(10 + i%4).sum()
		}(i)
	}
	go func() { wg.Wait(); close(results) }()
	total := 0
	for r := range results {
		total += r
	}
	fmt.Println("trees", total)
	m := map[string]int{}
	for i := 0; i < 100000; i++ {
		m[fmt.Sprintf("key%d", i%5000)] += i
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	h := sha256.Sum256([]byte(strings.Join(keys, ",")))
	fmt.Printf("keys %d %x\n", len(keys), h[:8])
	tick := time.NewTicker(5 * time.Millisecond)
	n := 0
	for range tick.C {
		n++
		if n == 10 {
			tick.Stop()
			break
		}
	}
	fmt.Println("ticks", n)
	r, w, _ := os.Pipe()
	go func() { fmt.Fprintln(w, "through a pipe"); w.Close() }()
	buf := make([]byte, 100)
	k, _ := r.Read(buf)
	fmt.Print(string(buf[:k]))
	spin := make(chan bool)
	go func() {
		for {
			select {
			case <-spin:
				return
			default:
			}
		}
	}()
	go func() {
		for i := 0; ; i++ {
		}
	}() // preempted by signals
	runtime.GC()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	fmt.Println("gc ran", ms.NumGC > 2)
	close(spin)
	func() {
		defer func() { fmt.Println("recovered:", recover()) }()
		var p *node
		fmt.Println(p.value)
	}()
	fmt.Println("args", len(os.Args), os.Getenv("HOME") != "")
}
