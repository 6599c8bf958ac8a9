package job

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseBytes(t *testing.T) {
	good := map[string]Bytes{
		"0B": 0, "1B": 1, "64MiB": 64 << 20, "1.5GB": 1.5e9, "1.5GiB": 3 << 29, "1kB": 1000, "1KB": 1000, "2 TiB": 2 << 40,
		"8191PiB": 8191 << 50,
	}
	for in, want := range good {
		if got, err := ParseBytes(in); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "1", "-1B", "+1B", "1Mb", "1mb", "1M", "1MiBs", "1.B", ".5B", "0.1KiB", "1e9B",
		"1e999999999B", "9000PiB", "8192PiB", "999999999999999999PB", "64Mbit", "1  GB", "1GB ", "9223372036854775807B", "NaNB", "0x10B", "1_000B"} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("ParseBytes(%q) = %d, want an error", in, got)
		}
	}
}

func TestParseRate(t *testing.T) {
	for in, want := range map[string]Rate{
		"20Gbit/s": 20e9, "2.5GB/s": 20e9, "300MiB/s": 300 * 8 << 20, "1bit/s": 1, "1B/s": 8, "1Kibit/s": 1024, "0.5kbit/s": 500,
	} {
		if got, err := ParseRate(in); err != nil || got != want {
			t.Errorf("ParseRate(%q) = %d, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "0bit/s", "20G", "20Gb/s", "20Gbps", "20Gbit", "-1bit/s", "0.5bit/s", "9PB/h", "2000PB/s", "/s"} {
		if got, err := ParseRate(in); err == nil {
			t.Errorf("ParseRate(%q) = %d, want an error", in, got)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0s": 0, "90s": 90 * time.Second, "2h": 2 * time.Hour, "1h30m": 90 * time.Minute, "7d": 168 * time.Hour,
	} {
		if got, err := ParseDuration(in); err != nil || time.Duration(got) != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "2", "-1s", "+1s", "-0s", "d", "1.5d", "99999d", "1d2h", "inf"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", in, got)
		}
	}
}

func TestUnitsSurviveJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type all struct {
			B Bytes
			R Rate
			D Duration
		}
		in := all{
			Bytes(rapid.Int64Range(0, math.MaxInt64).Draw(t, "bytes")),
			Rate(rapid.Int64Range(1, 1e17).Draw(t, "rate")),
			Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "duration")),
		}
		data, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out all
		if err := json.Unmarshal(data, &out); err != nil || out != in {
			t.Fatalf("%s: %+v, %v, want %+v", data, out, err, in)
		}
	})
}
