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
	const (
		mib = 1 << 20
		gib = 1 << 30
	)
	for _, tt := range []struct {
		name string

		// memory, cache, queries and rebuild are the texts of the flags.
		memory, cache, queries, rebuild string

		available int64 // memory of the machine; 0 if it is unknown
		isStatic  bool  // whether the program is built without cgo

		// The Limit of want is without Rebuild and Shadow, because rebuilds and verifications run
		// in worker processes.
		want service.Memory
	}{
		{
			name:   "the default on a large machine",
			memory: "auto", cache: "auto", queries: "auto", rebuild: "auto",
			available: 24 * gib, isStatic: true,
			want: service.Memory{
				Cache: 256 * mib, Queries: 64 * mib, Ring: 32 * mib, Rebuild: 128 * mib, Shadow: 64 * mib, Requests: 128 * mib,
				Limit: gib - gib/10 - (128+64)*mib,
			},
		},
		{
			name:   "the default on an unknown machine",
			memory: "auto", cache: "auto", queries: "auto", rebuild: "auto",
			available: 0, isStatic: true,
			want: service.Memory{
				Cache: 256 * mib, Queries: 64 * mib, Ring: 32 * mib, Rebuild: 128 * mib, Shadow: 64 * mib, Requests: 128 * mib,
				Limit: gib - gib/10 - (128+64)*mib,
			},
		},
		{
			name:   "the default on a small machine, with cgo",
			memory: "auto", cache: "auto", queries: "auto", rebuild: "auto",
			available: gib, isStatic: false,
			want: service.Memory{
				Cache: 128 * mib, Queries: 32 * mib, Ring: 32 * mib, Rebuild: 64 * mib, Shadow: 32 * mib, Requests: 64 * mib,
				Limit: (512 - 64 - 128 - (64 + 32)) * mib,
			},
		},
		{
			name:   "shares, no memory for queries, and a small rebuild",
			memory: "50%", cache: "50%", queries: "0", rebuild: "16MiB",
			available: 4 * gib, isStatic: true,
			want: service.Memory{
				Cache: gib, Queries: 0, Ring: 32 * mib, Rebuild: 16 * mib, Shadow: 128 * mib, Requests: 256 * mib,
				Limit: 2*gib - 2*gib/10 - (16+128)*mib,
			},
		},
		{
			name:   "a share below the minimum, and little memory for queries",
			memory: "10%", cache: "auto", queries: "1MiB", rebuild: "auto",
			available: gib, isStatic: true,
			want: service.Memory{
				Cache: 64 * mib, Queries: mib, Ring: 16 * mib, Rebuild: 32 * mib, Shadow: 16 * mib, Requests: 32 * mib,
				Limit: (192 - (32 + 16)) * mib,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parse := func(text string) memorySetting {
				t.Helper()
				var setting memorySetting
				if err := setting.UnmarshalText([]byte(text)); err != nil {
					t.Fatal(err)
				}
				if got := setting.String(); got != text {
					t.Errorf("the setting %s is printed as %s", text, got)
				}
				return setting
			}
			cache := parse(tt.cache)
			queries := parse(tt.queries)
			rebuild := parse(tt.rebuild)

			total, err := totalMemory(parse(tt.memory), tt.available)
			if err != nil {
				t.Fatal(err)
			}
			got, err := planMemory(total, tt.isStatic, cache, queries, rebuild)
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("planMemory: got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestFeedStreamLimitFollowsMemory demands that --memory determines how many streams of WatchFeed
// are admitted.
func TestFeedStreamLimitFollowsMemory(t *testing.T) {
	for _, tt := range []struct {
		name   string
		memory int64
		want   int
	}{
		{"minimum", minMemory, 1024},
		{"default", maxAutoMemory, 4096},
		{"16 GiB", 16 << 30, 10_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := maxFeedWatchStreams(tt.memory); got != tt.want {
				t.Errorf("maxFeedWatchStreams(%d): got %d, want %d", tt.memory, got, tt.want)
			}
		})
	}
}

// TestInvalidMemoryIsRefused demands that settings that cannot be read, or that leave too little
// memory for a part, are refused.
func TestInvalidMemoryIsRefused(t *testing.T) {
	for _, text := range []string{"", "0%", "101%", "x%", "NaN%", "-1", "1TB"} {
		if err := new(memorySetting).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("the setting %q is accepted, want an error", text)
		}
	}

	var auto memorySetting
	newSize := func(n int64) memorySetting { return memorySetting{given: true, bytes: flags.ByteSize(n)} }
	if _, err := totalMemory(newSize(1<<20), 0); err == nil {
		t.Error("1 MiB in all is accepted, want an error")
	}
	if _, err := totalMemory(memorySetting{given: true, share: .5}, 0); err == nil {
		t.Error("a share of an unknown amount is accepted, want an error")
	}
	if _, err := planMemory(1<<30, true, newSize(700<<20), auto, auto); err == nil {
		t.Error("a cache that leaves no memory for anything else is accepted, want an error")
	}
	if _, err := planMemory(1<<30, true, auto, auto, newSize(1<<20)); err == nil {
		t.Error("a rebuild in 1 MiB is accepted, want an error")
	}
}

// TestAvailableMemoryIsTheLowestLimit demands the minimum of the machine and of all cgroups around
// the process, of both cgroup versions.
func TestAvailableMemoryIsTheLowestLimit(t *testing.T) {
	const machine = 4 << 20
	for name, tt := range map[string]struct {
		machine int64             // memory of the machine; 0 if it is unknown
		files   map[string]string // contents of files, by path
		want    int64
	}{
		"nothing known": {machine: 0, want: 0},
		"the machine":   {machine: machine, want: machine},
		"version 2": {
			machine: machine,
			files: map[string]string{
				"proc/self/cgroup":             "0::/a/b\n",
				"sys/fs/cgroup/a/b/memory.max": "max\n",
				"sys/fs/cgroup/a/memory.max":   "2097152\n",
			},
			want: 2 << 20,
		},
		"version 1": {
			machine: machine,
			files: map[string]string{
				"proc/self/cgroup": "9:name=systemd:/\n4:memory:/a\n0::/\n",
				"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1048576\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712\n",
			},
			want: 1 << 20,
		},
		"in a container": {
			machine: machine,
			files: map[string]string{
				"proc/self/cgroup":         "0::/\n",
				"sys/fs/cgroup/memory.max": "3145728\n",
			},
			want: 3 << 20,
		},
		"a cgroup of an unknown machine": {
			machine: 0,
			files: map[string]string{
				"proc/self/cgroup":         "0::/\n",
				"sys/fs/cgroup/memory.max": "3145728\n",
			},
			want: 3 << 20,
		},
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
				t.Errorf("availableMemory: got %d bytes, want %d", got, tt.want)
			}
		})
	}
}

// TestMachineMemoryEqualsProc compares the memory of the machine, which is read without /proc, with
// what /proc says.
func TestMachineMemoryEqualsProc(t *testing.T) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		// Without /proc, the memory is only known on Linux.
		isLinux := runtime.GOOS == "linux"
		if got := machineMemory(); (got > 0) != isLinux {
			t.Errorf("machineMemory on %s: got %d bytes, want some only on Linux", runtime.GOOS, got)
		}
		return
	}

	var kib int64
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kib); err != nil {
		t.Fatal(err)
	}
	if got, want := machineMemory(), kib<<10; got != want {
		t.Errorf("machineMemory: got %d bytes, want %d", got, want)
	}
}

// TestServeAppliesMemoryFlag demands that a service takes Go's memory limit and the size of its
// cache from --memory.
func TestServeAppliesMemoryFlag(t *testing.T) {
	s := startServer(t.Context(), t, "--memory", "512MiB")
	var auto memorySetting
	plan, err := planMemory(512<<20, version().Static, auto, auto, auto)
	if err != nil {
		t.Fatal(err)
	}

	text := s.metrics(t)
	for name, want := range map[string]int64{"go_gc_gomemlimit_bytes": plan.Limit, "skein_block_cache_max_bytes": plan.Cache} {
		line := fmt.Sprintf("\n%s %s\n", name, strconv.FormatFloat(float64(want), 'g', -1, 64))
		if !strings.Contains(text, line) {
			t.Errorf("the metrics do not contain the line %q", line)
		}
	}
}

// metrics returns the page of metrics of the process.
func (s *serverProcess) metrics(t *testing.T) string {
	t.Helper()
	status, text, err := httpGet(t.Context(), http.DefaultClient, "http://"+s.addr+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	if status != http.StatusOK {
		t.Fatalf("GET /metrics: got status %d, want %d", status, http.StatusOK)
	}
	return text
}
