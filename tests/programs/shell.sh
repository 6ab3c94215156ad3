# What shells do: pipelines, subshells, functions, traps, background jobs, here documents. The
# same on the host and in the kernel.
set -u
count() { i=0; while [ $i -lt "$1" ]; do echo "line $i"; i=$((i + 1)); done; }
count 200 | grep 7 | sort -r | head -n 5
count 500 | tee /tmp/copy.$$ | wc -l
cmp -s /tmp/copy.$$ /dev/null || echo "the copy has something"
rm /tmp/copy.$$
(cd / && (exit 7)); echo "status $?"
x=$(count 50 | awk '{ s += $2 } END { print s }'); echo "sum $x"
cat <<TEXT | tr a-z A-Z
here is $x
TEXT
for n in 1 2 3; do (sleep 0.0$n; echo "job $n" > /tmp/job$n.$$) & done; wait
cat /tmp/job1.$$ /tmp/job2.$$ /tmp/job3.$$; rm /tmp/job[123].$$
trap 'echo "told"' USR1; kill -USR1 $$; trap - USR1
sh -c 'kill -TERM $$'; echo "killed $?"
sleep 60 & p=$!; sleep 0.2; kill $p; wait $p; echo "child $?"
(trap 'exit 3' TERM; kill -TERM "$(sh -c 'echo $PPID')"; sleep 1); echo "trap $?"
yes | head -n 100000 | wc -c
false | true; echo "pipe $?"
! true; echo "not $?"
exec 3> /tmp/three.$$; echo "through three" >&3; exec 3>&-; cat /tmp/three.$$; rm /tmp/three.$$
seq 20000 | sort -n -r | sed -n '1p;$p'
[ "$(ulimit -n)" -ge 256 ] && echo "files enough"
eval 'set -- a "b c" d'; echo "$# $2"
exit 5
