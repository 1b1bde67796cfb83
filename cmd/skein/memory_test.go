package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/skein-feed/skein/cmd/skein/internal/flags"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
)

// TestMemoryFlagSetsEveryLimit demands that everything that can grow gets a part of --memory, and
// that flags that are given override these parts.
func TestMemoryFlagSetsEveryLimit(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	// Rebuilds and verifications run in worker processes, so their memory is not part of the limit
	// of this process.
	shared := func(limit, cache, queries, ring, rebuild, shadow, requests int64) service.Memory {
		return service.Memory{Limit: limit - rebuild - shadow, Cache: cache, Queries: queries, Ring: ring, Rebuild: rebuild, Shadow: shadow, Requests: requests}
	}
	for _, tt := range []struct {
		memory, cache, queries, rebuild string
		available                       int64
		static                          bool
		want                            service.Memory
	}{
		{"auto", "auto", "auto", "auto", 24 * gib, true, shared(gib-gib/10, 256*mib, 64*mib, 32*mib, 128*mib, 64*mib, 128*mib)},
		{"auto", "auto", "auto", "auto", 0, true, shared(gib-gib/10, 256*mib, 64*mib, 32*mib, 128*mib, 64*mib, 128*mib)},
		{"auto", "auto", "auto", "auto", gib, false, shared((512-64-128)*mib, 128*mib, 32*mib, 32*mib, 64*mib, 32*mib, 64*mib)},
		{"50%", "50%", "0", "16MiB", 4 * gib, true, shared(2*gib-2*gib/10, gib, 0, 32*mib, 16*mib, 128*mib, 256*mib)},
		{"10%", "auto", "1MiB", "auto", gib, true, shared(192*mib, 64*mib, mib, 16*mib, 32*mib, 16*mib, 32*mib)},
	} {
		t.Run(fmt.Sprintf("%s of %d bytes", tt.memory, tt.available), func(t *testing.T) {
			var memory, cache, queries, rebuild memorySetting
			for _, s := range []struct {
				text string
				of   *memorySetting
			}{{tt.memory, &memory}, {tt.cache, &cache}, {tt.queries, &queries}, {tt.rebuild, &rebuild}} {
				if err := s.of.UnmarshalText([]byte(s.text)); err != nil {
					t.Fatal(err)
				}
				if s.of.String() != s.text {
					t.Errorf("%s is printed as %v", s.text, s.of)
				}
			}

			total, err := totalMemory(memory, tt.available)
			if err != nil {
				t.Fatal(err)
			}
			if plan, err := planMemory(total, tt.static, cache, queries, rebuild); err != nil || plan != tt.want {
				t.Errorf("got %+v, %v, expected %+v", plan, err, tt.want)
			}
		})
	}
}

// TestFeedStreamLimitFollowsMemory demands that --memory determines how many streams of WatchFeed
// are admitted.
func TestFeedStreamLimitFollowsMemory(t *testing.T) {
	for _, tt := range []struct {
		memory int64
		want   int
	}{
		{minMemory, 1024},
		{maxAutoMemory, 4096},
		{16 << 30, 10_000},
	} {
		if got := maxFeedWatchStreams(tt.memory); got != tt.want {
			t.Errorf("with %d bytes: expected %d streams, got %d", tt.memory, tt.want, got)
		}
	}
}

// TestInvalidMemoryIsRefused demands that settings that cannot be read, or that leave too little
// memory for a part, are refused.
func TestInvalidMemoryIsRefused(t *testing.T) {
	for _, text := range []string{"", "0%", "101%", "x%", "NaN%", "-1", "1TB"} {
		if err := new(memorySetting).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	size := func(n int64) memorySetting { return memorySetting{given: true, bytes: flags.ByteSize(n)} }
	if _, err := totalMemory(size(1<<20), 0); err == nil {
		t.Error("1 MiB in all is accepted")
	}
	if _, err := totalMemory(memorySetting{given: true, share: .5}, 0); err == nil {
		t.Error("a share of an unknown amount is accepted")
	}
	if _, err := planMemory(1<<30, true, size(700<<20), memorySetting{}, memorySetting{}); err == nil {
		t.Error("a cache that leaves no memory for anything else is accepted")
	}
	if _, err := planMemory(1<<30, true, memorySetting{}, memorySetting{}, size(1<<20)); err == nil {
		t.Error("a rebuild in 1 MiB is accepted")
	}
}

// TestAvailableMemoryIsTheLowestLimit demands the minimum of the machine and of all cgroups around
// the process, of both cgroup versions.
func TestAvailableMemoryIsTheLowestLimit(t *testing.T) {
	const machine = 4 << 20
	for name, tt := range map[string]struct {
		machine int64
		files   map[string]string
		want    int64
	}{
		"nothing known": {0, nil, 0},
		"the machine":   {machine, nil, machine},
		"version 2": {machine, map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "2097152\n",
		}, 2 << 20},
		"version 1": {machine, map[string]string{
			"proc/self/cgroup": "9:name=systemd:/\n4:memory:/a\n0::/\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1048576\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 1 << 20},
		"in a container": {machine, map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "3145728\n",
		}, 3 << 20},
		"a cgroup of an unknown machine": {0, map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "3145728\n",
		}, 3 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range tt.files {
				file = filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := availableMemory(tt.machine, root); got != tt.want {
				t.Errorf("got %d bytes, expected %d", got, tt.want)
			}
		})
	}
}

// TestMachineMemoryEqualsProc compares the memory of the machine, which is read without /proc, with
// what /proc says.
func TestMachineMemoryEqualsProc(t *testing.T) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		if got := machineMemory(); (got > 0) != (runtime.GOOS == "linux") {
			t.Errorf("%d bytes on %s", got, runtime.GOOS)
		}
		return
	}
	var kib int64
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kib); err != nil {
		t.Fatal(err)
	}
	if got, expected := machineMemory(), kib<<10; got != expected {
		t.Errorf("%d bytes, expected %d", got, expected)
	}
}

// TestServeAppliesMemoryFlag demands that a service takes Go's memory limit and the size of its
// cache from --memory.
func TestServeAppliesMemoryFlag(t *testing.T) {
	s := startServer(t.Context(), t, "--memory", "512MiB")
	plan, err := planMemory(512<<20, version().Static, memorySetting{}, memorySetting{}, memorySetting{})
	if err != nil {
		t.Fatal(err)
	}
	text := s.metrics(t)
	for name, want := range map[string]int64{"go_gc_gomemlimit_bytes": plan.Limit, "skein_block_cache_max_bytes": plan.Cache} {
		if line := fmt.Sprintf("\n%s %s\n", name, strconv.FormatFloat(float64(want), 'g', -1, 64)); !strings.Contains(text, line) {
			t.Errorf("no%q among the metrics", line)
		}
	}
}

// metrics returns the page of metrics of the process.
func (s *serverProcess) metrics(t *testing.T) string {
	t.Helper()
	status, text, err := httpGet(t.Context(), http.DefaultClient, "http://"+s.addr+"/metrics")
	if err != nil || status != http.StatusOK {
		t.Fatalf("the metrics: status %d, %v", status, err)
	}
	return text
}
