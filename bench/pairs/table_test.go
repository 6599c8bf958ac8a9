package pairs

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	target := 1.3
	var out strings.Builder
	err := Table(&out, []Entry{
		{Name: "met-it", Peer: "p", Ours: 1, Theirs: 2, Unit: "s", Ratio: 2, Low: 1.9, High: 2.1, Filesystem: "tmpfs", Target: &target, Setting: "p -x"},
		{Name: "short-of-it", Peer: "p", Ours: 2, Theirs: 2, Unit: "ns", Ratio: 1, Low: 0.9, High: 1.1, Target: &target},
		{Name: "just-shown", Peer: "p", Ours: 2, Theirs: 2, Unit: "us", Ratio: 1, Low: 0.9, High: 1.1, Filesystem: "memory"},
		{Name: "peer-alone", Peer: "p", Theirs: 2, Unit: "s", Filesystem: "ext4", Target: &target},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"FIGURE FILE SYSTEM MOVER PEER UNIT RATIO 95 % INTERVAL TARGET PEER RAN AS",
		"met-it tmpfs 1.00 2.00 s 2.00 1.90 .. 2.10 >= 1.30 met p -x",
		"short-of-it - 2.00 2.00 ns 1.00 0.90 .. 1.10 >= 1.30 short p",
		"just-shown memory 2.00 2.00 us 1.00 0.90 .. 1.10 - shown p",
		"peer-alone ext4 - 2.00 s - - >= 1.30 p",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
