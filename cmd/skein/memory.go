package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// memorySetting is a size, or a share of what the machine or the cgroup has: 4GiB, 50%.
type memorySetting struct {
	bytes byteSize
	share float64
}

// UnmarshalText is part of encoding.TextUnmarshaler.
func (m *memorySetting) UnmarshalText(text []byte) error {
	*m = memorySetting{}
	if number, ok := strings.CutSuffix(string(text), "%"); ok {
		share, err := strconv.ParseFloat(number, 64)
		if err != nil || !(share > 0 && share <= 100) {
			return fmt.Errorf("%q is no share: must be above 0%% and at most 100%%", text)
		}
		m.share = share / 100
		return nil
	}
	if err := m.bytes.UnmarshalText(text); err != nil {
		return fmt.Errorf("%w, or a share such as 50%%", err)
	}
	return nil
}

// String is the setting as UnmarshalText takes it.
func (m memorySetting) String() string {
	if m.share > 0 {
		return strconv.FormatFloat(m.share*100, 'g', -1, 64) + "%"
	}
	return m.bytes.String()
}

// leastMemory is the least with which the service can be expected to work.
const leastMemory = 256 << 20

// resolve returns the setting in bytes; available is what a share is of, 0 if that is not known.
func (m memorySetting) resolve(available int64) (int64, error) {
	total := int64(m.bytes)
	if m.share > 0 {
		if available == 0 {
			return math.MaxInt64, nil // there is nothing to take a share of: no limit
		}
		total = max(leastMemory, int64(m.share*float64(available)))
	}
	if total < leastMemory {
		return 0, usage("--memory must be at least 256MiB, is %v", byteSize(total))
	}
	return total, nil
}

// memoryPlan shares the memory of the process out. Flags lower the parts; none is larger than its flag.
type memoryPlan struct {
	// limit is Go's soft limit.
	limit int64
	// cache is for blocks of tables and memtables, hot for decoded follows, ring for what has been read of the log,
	// rebuild for the rows and blocks of a rebuild.
	cache, hot, ring, rebuild int64
}

// Parts of --memory. What they leave is for memtables of rebuilds, calls under way, the log's server and the collector.
const (
	cachePart   = 4
	hotPart     = 32
	ringPart    = 16
	rebuildPart = 8
)

func planMemory(total int64, static bool, cache, hot, rebuildMemory byteSize) memoryPlan {
	p := memoryPlan{
		limit: math.MaxInt64,
		cache: min(int64(cache), total/cachePart), hot: min(int64(hot), total/hotPart),
		ring: min(128<<20, total/ringPart), rebuild: min(int64(rebuildMemory), max(16<<20, total/rebuildPart)),
	}
	if total < math.MaxInt64 {
		p.limit = total / 10 * 9 // what is not the heap's: stacks of C, pages of files, what the collector is late with
		if !static {             // with cgo, Pebble's cache is not of the heap
			p.limit -= p.cache
		}
	}
	return p
}

// availableMemory is what the process may take: that of the machine, or of its cgroup (version 1 or 2) if that is less;
// 0 where neither is known. root is / but in tests.
func availableMemory(root string) int64 {
	least := int64(math.MaxInt64)
	text, _ := os.ReadFile(path.Join(root, "proc/meminfo"))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				least = kib << 10
			}
		}
	}
	text, _ = os.ReadFile(path.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		dir, file := "sys/fs/cgroup", "memory.max"
		if f[0] != "0" || f[1] != "" {
			if !strings.Contains(","+f[1]+",", ",memory,") {
				continue
			}
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		// The limits of all groups above hold, too. In a container the own group is the root of what is mounted.
		for group := path.Clean("/" + f[2]); ; group = path.Dir(group) {
			text, _ := os.ReadFile(path.Join(root, dir, group, file))
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
				least = min(least, n)
			}
			if group == "/" {
				break
			}
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

const (
	// giveBackEvery is how often memory that is not needed is given back to the system.
	giveBackEvery = 30 * time.Second
	// giveBackLeast is how much must be kept in vain, or wait to be collected, for that: a collection costs.
	giveBackLeast = 64 << 20
)

// giveBack gives memory back that large work has left, until the context ends. The collector of an idle process runs
// every two minutes only, and gives back slowly.
func giveBack(ctx context.Context) {
	tick := time.NewTicker(giveBackEvery)
	defer tick.Stop()
	var left uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := heldMemory(); now > left+giveBackLeast {
			debug.FreeOSMemory()
			left = heldMemory()
		} else {
			left = min(left, now)
		}
	}
}

// heldMemory is what the process holds of the system's memory, in bytes.
func heldMemory() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64() - s[1].Value.Uint64()
}
