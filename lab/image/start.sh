# The guest's first process once its root is the host's: what is left to mount,
# then the agent. A shell and not the agent, because the first process inherits
# orphans and must wait for them, which a shell does.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/lab HOME=/run/lab LANG=C
box=/run/lab/busybox
$box mkdir -p /dev/pts /dev/shm
$box mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
$box mount -t tmpfs -o mode=1777 tmpfs /dev/shm
$box mount -t debugfs debugfs /sys/kernel/debug
$box ip link set lo up
# Guests run as root, but what they start may give that up.
ulimit -l unlimited
ulimit -n 65536
echo "lab: starting the agent"
/run/lab/agent
echo "lab: the agent has ended ($?), power off"
# At once: nothing here is kept.
echo o >/proc/sysrq-trigger
$box sleep 60
