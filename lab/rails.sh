# sh rails.sh HOST MTU PAGES: rails as new, huge pages, by name rail0, rail1.
# What is right is left as it is.
host=$1 mtu=$2 pages=$3
for rail in 0 1; do
	card=rail$rail
	tc qdisc del dev $card root 2>/dev/null || true
	ip link set $card mtu "$mtu" up
	[ "$(ip -4 -o addr show dev $card | awk '{ print $4 }')" = 10.77.$rail.$host/24 ] || {
		ip -4 addr flush dev $card
		ip addr add 10.77.$rail.$host/24 dev $card
	}
	[ -e /sys/class/infiniband/rxe$rail ] || rdma link add rxe$rail type rxe netdev $card
	echo "$pages" >/sys/devices/system/node/node$rail/hugepages/hugepages-2048kB/nr_hugepages
	got=$(cat /sys/devices/system/node/node$rail/hugepages/hugepages-2048kB/nr_hugepages)
	[ "$got" -eq "$pages" ] || echo "only $got huge pages on NUMA node $rail" >&2
done
chmod 666 /dev/infiniband/* 2>/dev/null || true
