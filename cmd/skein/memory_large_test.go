//go:build memory && linux

package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// The history that the memory of a service is measured with.
const (
	historyUsers   = 100_000
	followsPerUser = 10
)

// TestImportRebuildAndVerifyFitIntoMemory demands that a process stays within --memory while it
// imports, rebuilds and verifies, and that it gives back within two minutes what it needed for
// that. Nothing in the test depends on the speed of the machine.
func TestImportRebuildAndVerifyFitIntoMemory(t *testing.T) {
	for _, tt := range []struct {
		memory string
		// maxResident and maxResidentAfter are the most that may be resident, at any time and two
		// minutes after the work, in bytes.
		maxResident, maxResidentAfter int64
	}{
		{memory: "512MiB", maxResident: 512 << 20, maxResidentAfter: 448 << 20},
		{memory: "auto", maxResident: maxAutoMemory, maxResidentAfter: 704 << 20},
	} {
		t.Run(tt.memory, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "follows.csv")
			writeFollowHistory(t, file)
			s := &serverProcess{t: t, dir: dir, flags: []string{"--memory", tt.memory, "--log-level", "warn"}}
			if err := s.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer s.kill()

			// The memory of the process may exceed the limit by a tenth.
			maxPeak := tt.maxResident / 10 * 11
			checkPeak := func(phase string, args ...string) {
				t.Helper()
				s.resetPeakMemory(t)
				began := time.Now()
				// A verification takes as long as a busy machine lets a process of the lowest
				// priority take, so only go test ends it.
				if out, err := runProgram(t.Context(), s, "skein", "", args...); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}

				peak := s.residentBytes(t, "VmHWM")
				now := s.residentBytes(t, "VmRSS")
				t.Logf("%s: %v, at most %d MiB, now %d MiB", phase, time.Since(began).Round(time.Second), peak>>20, now>>20)
				if peak > maxPeak {
					t.Errorf("%s took %d MiB, want at most %d", phase, peak>>20, maxPeak>>20)
				}
			}

			checkPeak("import", "import", "follows", file)
			s.waitUntilReleased(t, tt.maxResidentAfter)
			for _, name := range []string{"graph", "inbox", "counters"} {
				checkPeak("rebuild of "+name, "replay", "rebuild", name)
			}
			checkPeak("verification", "replay", "verify")
			s.waitUntilReleased(t, tt.maxResidentAfter)
			checkPeak("another import", "import", "follows", file, "--restart", "--source", "again")
		})
	}
}

// TestFeedStreamsFitIntoMemory demands that a process with the least --memory stays within it with
// as many streams of WatchFeed as it admits, while they are idle and while each of them counts
// published pins, and that the process still answers. 9500 such streams once took 554 MB.
func TestFeedStreamsFitIntoMemory(t *testing.T) {
	s := startServer(t.Context(), t, "--memory", "256MiB", "--log-level", "warn")
	a := &attacker{t: t, addr: s.addr}
	s.resetPeakMemory(t)

	a.openFeedStreams(t.Context(), 9500)

	// The memory of the process may exceed the limit by a tenth.
	const maxPeak = minMemory / 10 * 11
	peak := s.residentBytes(t, "VmHWM")
	now := s.residentBytes(t, "VmRSS")
	t.Logf("%d streams: at most %d MiB, now %d MiB", maxFeedWatchStreams(minMemory), peak>>20, now>>20)
	if peak > maxPeak {
		t.Errorf("the streams took %d MiB, want at most %d", peak>>20, maxPeak>>20)
	}
	if got := s.queryUntilAdmitted(t, "query", "check", "reader1", "owner1"); !strings.Contains(got, "explicit") {
		t.Errorf("with open streams, a query is answered %q, want an explicit follow", got)
	}
}

// TestNotificationWatchersFitIntoMemory demands that 5000 streams of WatchNotifications take less
// than 200 MB, and that their users are still notified. While all of the streams count, the heap
// grows by about as much again, because the collector lets garbage grow up to the size of what is
// in use.
func TestNotificationWatchersFitIntoMemory(t *testing.T) {
	const (
		watchers = 5000
		rounds   = 5
		maxBytes = 200_000_000
	)
	s := startServer(t.Context(), t, "--memory", "2GiB", "--log-level", "warn")
	a := &attacker{t: t, addr: s.addr}

	// In each round, another actor follows all watchers.
	actors := 0
	followAll := func() {
		for range rounds {
			actors++
			for first := 0; first < watchers; first += 500 {
				var follows []*skeinv1.Event
				for i := first; i < first+500; i++ {
					follows = append(follows, userFollowed(fmt.Sprint("actor", actors), fmt.Sprint("reader", i)))
				}
				a.publish(t.Context(), follows)
			}
		}
	}
	followAll()
	before := s.residentBytes(t, "VmRSS")

	a.openStreams(t.Context(), connectv1.NotificationServiceWatchNotificationsProcedure, watchers, func(i int) proto.Message {
		return &skeinv1.WatchNotificationsRequest{UserId: fmt.Sprint("reader", i)}
	})
	a.waitForMetric(t.Context(), fmt.Sprint(`skein_budget_used{of="streams of skein.v1.FeedService/WatchFeed"} `, watchers))
	a.waitUntilIdle(t.Context())
	open := s.residentBytes(t, "VmRSS")
	if open-before > maxBytes {
		t.Errorf("the streams took %d bytes, want at most %d", open-before, maxBytes)
	}

	// Let all streams count.
	followAll()
	a.waitUntilIdle(t.Context())
	t.Logf("%d kB without streams, %d kB with %d, at most %d kB while they counted",
		before/1000, open/1000, watchers, s.residentBytes(t, "VmHWM")/1000)
	lastActor := fmt.Sprint("actor", actors)
	if got := s.queryUntilAdmitted(t, "query", "notifications", "reader1"); !strings.Contains(got, lastActor) {
		t.Errorf("got the notifications %s, want one of %s", got, lastActor)
	}
}

// writeFollowHistory writes a file of follows: some users have many followers, most few.
func writeFollowHistory(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	w := bufio.NewWriter(f)
	fmt.Fprintln(w, "follower,user")
	rng := rand.New(rand.NewPCG(7, 7))
	for user := range historyUsers {
		excluded := map[int]bool{user: true} // nobody follows themself, or anybody twice
		for follows := 0; follows < followsPerUser; {
			// The third power makes users with low numbers popular.
			share := rng.Float64()
			followee := int(share * share * share * historyUsers)
			if excluded[followee] {
				continue
			}
			excluded[followee] = true
			follows++
			fmt.Fprintf(w, "user%d,user%d\n", user, followee)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

// waitUntilReleased waits until no more than maxResident bytes are resident, for two minutes at
// most.
func (s *serverProcess) waitUntilReleased(t *testing.T, maxResident int64) {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		resident := s.residentBytes(t, "VmRSS")
		if resident <= maxResident {
			t.Logf("after %v %d MiB are resident", time.Since(began).Round(time.Second), resident>>20)
			return
		}
		if time.Since(began) > 2*time.Minute {
			t.Errorf("after two minutes %d MiB are resident, want at most %d", resident>>20, maxResident>>20)
			return
		}
		<-tick.C
	}
}
