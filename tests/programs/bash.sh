# What scripts for bash do that others do not: arrays, functions with local names, arithmetic,
# patterns, coprocesses, here strings, traps. The same on the host and in the kernel.
declare -A squares
for ((i = 0; i < 200; i++)); do squares[$i]=$((i * i)); done
echo "${#squares[@]} ${squares[199]}"
words=(one two three "four five")
echo "${#words[@]} ${words[@]^^} ${words[3]}"
mapfile -t lines < <(printf '%s\n' a "b c" d)
echo "${#lines[@]} ${lines[1]}"
add() { local -i sum=0; local word; for word; do sum+=word; done; echo $sum; }
echo "sum $(add {1..500})"
[[ "faults 12345 spf" =~ ([0-9]+) ]] && echo "matched ${BASH_REMATCH[1]}"
shopt -s extglob nullglob
case abcabc in +(abc)) echo "pattern" ;; esac
text=$(for n in {1..2000}; do echo "line $n of many"; done)
echo "${#text} ${text: -9} ${text//[aeiou]/}" | { read -r a b c rest; echo "$a $b $c"; }
read -r first second <<< "here string"
echo "$second $first"
(trap 'echo "subshell ends"' EXIT; exit 3); echo "status $?"
coproc { while read -r line; do echo "<$line>"; done; }
echo "to the other" >&"${COPROC[1]}"
read -r answer <&"${COPROC[0]}"
echo "$answer"
kill "$COPROC_PID"; wait "$COPROC_PID" 2> /dev/null
for n in 1 2 3 4; do (for ((k = 0; k < 2000; k++)); do :; done; exit $n) & started+=" $!"; done
sum=0; for job in $started; do wait "$job"; sum=$((sum + $?)); done; echo "jobs $sum"
printf '%s\n' {9..0} > /tmp/numbers.$$
while read -r n; do echo -n "$n "; done < /tmp/numbers.$$; echo
exec 7<> /tmp/numbers.$$; read -r -u 7 n; echo "descriptor $n"; exec 7>&-
set -o pipefail; false | true; echo "pipe $?"
trap 'echo "told"' USR1; kill -USR1 $$; printf -v padded '%08.3f' 3.14159; echo "$padded"
big=$(printf 'x%.0s' {1..100000}); echo "${#big}"
exit 9
