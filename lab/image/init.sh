#!/bin/busybox sh
# The first process of a guest: loads the modules, mounts the host's files and
# goes on there with start.sh. The kernel runs it from the initramfs.
export PATH=/bin
/bin/busybox --install -s /bin
fail() {
	echo "lab: $*"
	echo o >/proc/sysrq-trigger
	sleep 60
}
mkdir -p /proc /sys /dev /root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module options; do
	# shellcheck disable=SC2086 # options are words
	insmod "/modules/$module" $options || fail "cannot load $module"
done </modules/order

# The root is cached for good, which makes starting a program several times
# faster: what is installed on the host does not change while guests run. The
# host's files once more, also those under what is covered below, as they are
# at the moment: what is built on the host is there.
options=trans=virtio,version=9p2000.L,msize=512000,ro
mount -t 9p -o $options,cache=loose hostroot /root || fail "cannot mount the host's root"
mount -t tmpfs -o mode=755 tmpfs /root/run
mkdir -p /root/run/host /root/run/lab
mount -t 9p -o $options,cache=mmap hostfiles /root/run/host || fail "cannot mount the host's files"
for dir in tmp var/tmp; do
	[ ! -d "/root/$dir" ] || mount -t tmpfs -o mode=1777 tmpfs "/root/$dir"
done
for dir in proc sys dev; do
	mount --move "/$dir" "/root/$dir"
done
cp /bin/busybox /lab/agent /lab/start.sh /root/run/lab/ || fail "cannot copy the agent"
exec switch_root /root /run/lab/busybox sh /run/lab/start.sh
