package main

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestMemoryIsSharedOut: --memory is one number, of which everything that can grow has a part.
func TestMemoryIsSharedOut(t *testing.T) {
	for _, c := range []struct {
		text      string
		available int64
		static    bool
		want      memoryPlan
	}{
		{"16GiB", 0, true, memoryPlan{(16 << 30) / 10 * 9, 512 << 20, 64 << 20, 128 << 20, 512 << 20}},
		{"50%", 2 << 30, true, memoryPlan{(1 << 30) / 10 * 9, 256 << 20, 32 << 20, 64 << 20, 128 << 20}},
		{"1GiB", 2 << 30, false, memoryPlan{(1<<30)/10*9 - 256<<20, 256 << 20, 32 << 20, 64 << 20, 128 << 20}},
		{"50%", 0, true, memoryPlan{math.MaxInt64, 512 << 20, 64 << 20, 128 << 20, 512 << 20}},
		{"10%", 1 << 30, true, memoryPlan{leastMemory / 10 * 9, 64 << 20, 8 << 20, 16 << 20, 32 << 20}},
	} {
		var m memorySetting
		if err := m.UnmarshalText([]byte(c.text)); err != nil {
			t.Fatal(err)
		}
		total, err := m.resolve(c.available)
		if err != nil {
			t.Fatal(err)
		}
		p := planMemory(total, c.static, 512<<20, 64<<20, 512<<20)
		if p != c.want {
			t.Errorf("%s of %d: %+v, want %+v", c.text, c.available, p, c.want)
		}
		if sum := p.cache + p.hot + p.ring + p.rebuild; total < math.MaxInt64 && sum > total/2 {
			t.Errorf("%s: the parts are %d of %d", c.text, sum, total)
		}
	}
	for _, text := range []string{"", "0%", "101%", "x%", "NaN%", "-1", "1TB"} {
		if err := new(memorySetting).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	if _, err := (memorySetting{bytes: 1 << 20}).resolve(0); err == nil {
		t.Error("a MiB is taken")
	}
}

// TestAvailableMemory: the least of the machine and of all cgroups around the process, of either version.
func TestAvailableMemory(t *testing.T) {
	const machine = "MemFree: 1 kB\nMemTotal:       4096 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing known": {nil, 0},
		"the machine":   {map[string]string{"proc/meminfo": machine}, 4 << 20},
		"version 2": {map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "2097152\n",
		}, 2 << 20},
		"version 1": {map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "9:name=systemd:/\n4:memory:/a\n0::/\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1048576\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 1 << 20},
		"in a container": {map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "3145728\n",
		}, 3 << 20},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			file = filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := availableMemory(root); got != c.want {
			t.Error(name, fmt.Sprint(got), c.want)
		}
	}
}

// TestServeSetsItsMemory demands that a service has Go's limit and its cache from --memory.
func TestServeSetsItsMemory(t *testing.T) {
	s := &server{t: t, dir: t.TempDir(), flags: []string{"--memory", "512MiB"}}
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.kill()
	plan := planMemory(512<<20, version().Static, 512<<20, 64<<20, 512<<20)
	text := s.metrics(t)
	for name, want := range map[string]int64{"go_gc_gomemlimit_bytes": plan.limit, "skein_block_cache_max_bytes": plan.cache} {
		if line := fmt.Sprintf("\n%s %s\n", name, strconv.FormatFloat(float64(want), 'g', -1, 64)); !strings.Contains(text, line) {
			t.Errorf("no%q among the metrics", line)
		}
	}
}

func (s *server) metrics(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.addr+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
