package main

import (
	"fmt"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/flags"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/replay/rebuild"
)

// memorySetting is the value of a flag for an amount of memory: a size such as 4GiB, a share of
// something larger such as 50%, or auto, which is the zero value.
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
			return fmt.Errorf("%q is not a share: it must be above 0%% and at most 100%%", text)
		}
		m.share = share / 100
		return nil
	}
	if err := m.bytes.UnmarshalText(text); err != nil {
		return fmt.Errorf("%w, or a share such as 50%%", err)
	}
	return nil
}

// String returns the setting in the form that UnmarshalText reads.
func (m memorySetting) String() string {
	switch {
	case !m.given:
		return "auto"
	case m.share > 0:
		return strconv.FormatFloat(m.share*100, 'g', -1, 64) + "%"
	}
	return m.bytes.String()
}

// resolve returns the setting in bytes, given the value of auto and the amount of which a share is
// a share.
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
	// maxAutoMemory is the most memory that a process uses without --memory. More helps little:
	// with four times as much, an import took a fifth less processor time (docs/sizing.md). The
	// operating system caches tables of the stores in the rest.
	maxAutoMemory = 1 << 30
)

// totalMemory returns the value of --memory in bytes. available is the memory of which a share is a
// share; 0 means that it is not known.
func totalMemory(m memorySetting, available int64) (int64, error) {
	switch {
	case m.share > 0 && available == 0:
		return 0, command.Usagef("--memory %v: the memory of this machine is not known, so give a size", m)
	case !m.given && available == 0:
		return maxAutoMemory, nil
	}

	total := m.resolve(min(maxAutoMemory, available/2), available)
	if !m.given || m.share > 0 { // on a small machine the share is raised, but a size that is too small is an error
		total = max(minMemory, total)
	}
	if total < minMemory {
		return 0, command.Usagef("--memory must be at least 256MiB, is %v", flags.ByteSize(total))
	}
	return total, nil
}

// A part of the process gets the total memory divided by one of these. The rest is for rows that
// are being folded, the server of the log and the garbage collector.
const (
	cacheDivisor     = 4
	queryDivisor     = 16
	ringDivisor      = 16
	rebuildDivisor   = 8
	shadowDivisor    = 16
	requestDivisor   = 8
	feedWatchDivisor = 8
)

const (
	// maxRingBytes is enough for the projections to share the envelopes that are read. This memory
	// is never released.
	maxRingBytes = 32 << 20
	// feedWatchBytes is the memory of one stream of WatchFeed on which nothing happens: a stack of
	// 8 KiB, a buffer of 4 KiB and some 8 KiB of other objects, for which the garbage collector
	// needs as much again.
	feedWatchBytes = 32 << 10
	// maxFeedWatches bounds the streams of WatchFeed on a machine with much memory.
	maxFeedWatches = 10_000
	// minNonHeapBytes is the memory that a process needs at least besides what the Go runtime
	// counts: its program, and pages of files.
	minNonHeapBytes = 64 << 20
)

// planMemory divides the total among the parts of the process. A flag overrides the share of its
// part. static reports that the program was built without cgo.
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

	// A worker process uses the memory for rebuilds, so this process must leave it free.
	p.Limit -= p.Rebuild + p.Shadow
	// With cgo, Pebble's cache is outside the Go heap, so that the limit of the Go runtime does not
	// count it.
	if !static {
		p.Limit -= p.Cache
	}
	return p, nil
}

// maxFeedWatchStreams returns how many streams of WatchFeed a process with this total memory may
// serve.
func maxFeedWatchStreams(total int64) int {
	return int(min(maxFeedWatches, total/feedWatchDivisor/feedWatchBytes))
}

// availableMemory returns the memory that the process may use, in bytes: that of the machine, or
// the limit of its cgroup (version 1 or 2) if that is less; 0 means that neither is known. machine
// is the memory of the machine; 0 means that it is not known. root is / except in tests.
func availableMemory(machine int64, root string) int64 {
	least := machine
	if least <= 0 {
		least = math.MaxInt64
	}

	// A line has the number of a hierarchy, its controllers and the path of the group. In version 2
	// the number is 0, and there are no controllers. In version 1 each controller may have a
	// hierarchy of its own.
	text, _ := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		hierarchy := fields[0]
		controllers := fields[1]
		group := fields[2]
		dir := "sys/fs/cgroup"
		file := "memory.max"
		if hierarchy != "0" || controllers != "" {
			if !slices.Contains(strings.Split(controllers, ","), "memory") {
				continue
			}
			dir = "sys/fs/cgroup/memory"
			file = "memory.limit_in_bytes"
		}

		// The limits of all groups above apply, too. In a container the root of the mounted file
		// system is the group of the container.
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
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
