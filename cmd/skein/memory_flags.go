package main

import (
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/flags"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/replay/rebuild"
)

// memorySetting is a size, or a share of something larger: 4GiB, 50%. The zero value is "auto".
type memorySetting struct {
	given bool
	bytes flags.ByteSize
	share float64
}

// UnmarshalText is part of encoding.TextUnmarshaler.
func (m *memorySetting) UnmarshalText(text []byte) error {
	*m = memorySetting{given: true}
	if string(text) == "auto" {
		*m = memorySetting{}
		return nil
	}
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
	switch {
	case !m.given:
		return "auto"
	case m.share > 0:
		return strconv.FormatFloat(m.share*100, 'g', -1, 64) + "%"
	}
	return m.bytes.String()
}

// resolve returns the setting in bytes. A share is a share of whole; auto stands for its own value.
func (m memorySetting) resolve(auto, whole int64) int64 {
	switch {
	case !m.given:
		return auto
	case m.share > 0:
		return int64(m.share * float64(whole))
	}
	return int64(m.bytes)
}

const (
	// minMemory is the least memory, in bytes, with which the service works well.
	minMemory = 256 << 20
	// maxAutoMemory is the most memory that a process uses without --memory. With four times as much an import took a fifth less processor
	// time (docs/sizing.md), and the system caches tables in the rest.
	maxAutoMemory = 1 << 30
)

// totalMemory returns --memory in bytes. A share is a share of available; 0 means that it is unknown.
func totalMemory(m memorySetting, available int64) (int64, error) {
	switch {
	case m.share > 0 && available == 0:
		return 0, command.Usagef("--memory %v: the memory of this machine is not known, so give a size", m)
	case !m.given && available == 0:
		return maxAutoMemory, nil
	}
	total := m.resolve(min(maxAutoMemory, available/2), available)
	if !m.given || m.share > 0 {
		total = max(minMemory, total)
	}
	if total < minMemory {
		return 0, command.Usagef("--memory must be at least 256MiB, is %v", flags.ByteSize(total))
	}
	return total, nil
}

// Parts of --memory. The rest is for rows that are being folded, the log's server and the garbage collector.
const (
	cacheDivisor     = 4
	queryDivisor     = 16
	ringDivisor      = 16
	rebuildDivisor   = 8
	shadowDivisor    = 16
	requestDivisor   = 8
	feedWatchDivisor = 8
	// maxRingBytes is enough for the projections to share the envelopes that are read. This memory is never released.
	maxRingBytes = 32 << 20
	// feedWatchBytes is what one stream of WatchFeed is counted as, however quiet it is: a stack of 8 KiB, a buffer of 4 KiB and some 8 KiB
	// of other objects, for which the garbage collector needs as much again.
	feedWatchBytes = 32 << 10
	// maxFeedWatches bounds the streams of WatchFeed on a machine with much memory.
	maxFeedWatches = 10_000
	// minNonHeapBytes is the least memory of a process that Go does not count: its program, and pages of files.
	minNonHeapBytes = 64 << 20
)

// planMemory divides the total among the parts of the process. Explicit flags win over the shares.
func planMemory(total int64, static bool, cache, queries, rebuildMemory memorySetting) (service.Memory, error) {
	p := service.Memory{
		Limit: total - max(total/10, minNonHeapBytes),
		Cache: cache.resolve(total/cacheDivisor, total), Queries: queries.resolve(total/queryDivisor, total), Ring: min(maxRingBytes, total/ringDivisor),
		Rebuild: rebuildMemory.resolve(min(rebuild.MostMemory, total/rebuildDivisor), total),
		Shadow:  total / shadowDivisor, Requests: total / requestDivisor,
	}
	if p.Rebuild < rebuild.LeastMemory || p.Rebuild > rebuild.MostMemory {
		return p, command.Usagef("--rebuild-memory must be from 16MiB to 4GiB, is %v", flags.ByteSize(p.Rebuild))
	}
	if sum := p.Cache + p.Queries + p.Ring + p.Rebuild; sum > total/4*3 {
		return p, command.Usagef("--block-cache-bytes (%v), --query-cache-bytes (%v) and --rebuild-memory (%v) must fit into "+
			"three quarters of --memory (%v), less %v for the log",
			flags.ByteSize(p.Cache), flags.ByteSize(p.Queries), flags.ByteSize(p.Rebuild), flags.ByteSize(total), flags.ByteSize(p.Ring))
	}
	// Workers take what builds take.
	p.Limit -= p.Rebuild + p.Shadow
	// With cgo, Pebble's cache is outside the Go heap.
	if !static {
		p.Limit -= p.Cache
	}
	return p, nil
}

// feedWatches returns how many streams of WatchFeed the process may serve with a total of memory.
func maxFeedWatchStreams(total int64) int {
	return int(min(maxFeedWatches, total/feedWatchDivisor/feedWatchBytes))
}

// availableMemory returns the memory that the process may use, in bytes: that of the machine, or the limit of its cgroup (version 1 or 2)
// if that is less; 0 means that neither is known. A machine of 0 bytes is not known. root is / except in tests.
func availableMemory(machine int64, root string) int64 {
	least := machine
	if least <= 0 {
		least = math.MaxInt64
	}
	text, _ := os.ReadFile(path.Join(root, "proc/self/cgroup"))
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
		// The limits of all groups above apply too. In a container, the root of the mount is the container's own group.
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
