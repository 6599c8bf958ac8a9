package procfs

import "testing"

func TestParsePeak(t *testing.T) {
	status := "Name:\tmover\nVmHWM:\t  614400 kB\nVmRSS:\t 1 kB\nHugetlbPages:\t    2048 kB\n"
	if got, err := parsePeak(status); err != nil || got != (614400+2048)<<10 {
		t.Errorf("got %d, %v", got, err)
	}
	if got, err := parsePeak("VmHWM:\t 1 kB\n"); err != nil || got != 1024 {
		t.Errorf("without hugetlbfs: %d, %v", got, err)
	}
	if _, err := parsePeak("Name:\tzombie\n"); err == nil {
		t.Error("a status without memory was accepted")
	}
}
