//go:build drill

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// baseFollows is how many follows there are before a drill, and lossesPerDrill how many disks are
// lost in it.
const (
	baseFollows    = 100_000
	lossesPerDrill = 4
)

// diskLoss is what one lost disk cost.
type diskLoss struct {
	ackedCount, lostCount int

	// window is the time from the first lost event to the loss of the disk: the RPO. restoreTime
	// and startTime together are the RTO.
	window, restoreTime, startTime time.Duration
}

// TestBackupRestoresServiceUnderTraffic loses the data directory of a service under traffic and
// restores it by the documented commands. It measures how many acknowledged facts are lost (RPO)
// and how long it takes until the service is ready again (RTO).
func TestBackupRestoresServiceUnderTraffic(t *testing.T) {
	for _, every := range []time.Duration{2 * time.Second, 10 * time.Second} {
		t.Run(fmt.Sprint("embedded, --archive-every ", every), func(t *testing.T) {
			backup := t.TempDir()
			archive := filepath.Join(backup, "log")
			target := filepath.Join(backup, "stores")
			flags := []string{"--archive", archive, "--archive-every", every.String(), "--snapshots", target, "--snapshot-every", "5s"}

			// The log is on the lost disk, so it is restored first. Snapshots must not be ahead of
			// it.
			loseDisks(t, 4*every, flags, func(s *serverProcess) {
				mustSkein(t, s, "skein", "", "replay", "archive", "restore", "--archive", archive, "--data", s.dataDir())
				restoreSnapshots(t, s, target, "--archive", archive)
			})
		})
	}

	t.Run("three NATS servers", func(t *testing.T) {
		cluster := startNATSCluster(t)
		target := filepath.Join(t.TempDir(), "stores")
		flags := []string{"--nats", cluster.urls(), "--snapshots", target, "--snapshot-every", "5s"}

		// The log is not on the lost disk, so no fact may be lost.
		worst := loseDisks(t, 12*time.Second, flags, func(s *serverProcess) { restoreSnapshots(t, s, target) })
		if worst.lostCount > 0 {
			t.Errorf("lost facts that a cluster has acknowledged: got %d, want 0", worst.lostCount)
		}
	})
}

// restoreSnapshots restores the latest snapshot of each projection that is not ahead of the log.
func restoreSnapshots(t *testing.T, s *serverProcess, target string, more ...string) {
	t.Helper()
	args := append([]string{"restore", "--target", target, "--data", s.dataDir()}, more...)
	t.Log(strings.TrimSpace(mustSkein(t, s, "skein", "", args...)))
}

// loseDisks removes the data directory of a service under traffic several times, each time after at
// most maxUptime, and restores it. It returns the worst values of all losses.
func loseDisks(t *testing.T, maxUptime time.Duration, flags []string, restore func(*serverProcess)) (worst diskLoss) {
	t.Helper()
	s := &serverProcess{t: t, dir: t.TempDir(), flags: append(flags, "--log-level", "warn")}
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := skeinv1connect.NewEventServiceClient(http.DefaultClient, "http://"+s.addr)
	publishBase(t, client)

	// The uptimes are random, so that the disk is lost at any moment between two backups.
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	minUptime := maxUptime / 3
	for round := range lossesPerDrill {
		uptime := minUptime + time.Duration(rng.Int64N(int64(maxUptime-minUptime)))
		acked := publishUntilKilled(t, s, client, round, uptime)

		lostAt := time.Now()
		if err := os.RemoveAll(s.dataDir()); err != nil {
			t.Fatal(err)
		}
		restore(s)
		restoredAt := time.Now()
		if err := s.start(t.Context()); err != nil {
			t.Fatal(err)
		}

		loss := diskLoss{ackedCount: len(acked), restoreTime: restoredAt.Sub(lostAt), startTime: time.Since(restoredAt)}
		loss.countLost(t, s, round, acked)
		t.Logf("round %d: %d facts acknowledged, %d lost, the first of them %.1f s before the disk; restored in %.1f s, ready %.1f s later",
			round, loss.ackedCount, loss.lostCount, loss.window.Seconds(), loss.restoreTime.Seconds(), loss.startTime.Seconds())
		worst.lostCount = max(worst.lostCount, loss.lostCount)
		worst.window = max(worst.window, loss.window)
		worst.restoreTime = max(worst.restoreTime, loss.restoreTime)
		worst.startTime = max(worst.startTime, loss.startTime)
	}

	t.Logf("worst of %d: RPO %.1f s (%d facts), RTO %.1f s", lossesPerDrill, worst.window.Seconds(), worst.lostCount,
		(worst.restoreTime + worst.startTime).Seconds())
	if err := s.stopGracefully(); err != nil {
		t.Fatal(err)
	}
	return worst
}

// publishBase publishes the follows that are there before the drill.
func publishBase(t *testing.T, client skeinv1connect.EventServiceClient) {
	t.Helper()
	var follows []*skeinv1.Event
	for i := range baseFollows {
		follows = append(follows, userFollowed(fmt.Sprint("base", i%5000), fmt.Sprint("user", i/5000)))
	}
	for chunk := range slices.Chunk(follows, 1000) {
		if _, err := client.Publish(t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: chunk})); err != nil {
			t.Fatal(err)
		}
	}
}

// ackedFact is a follow that was acknowledged.
type ackedFact struct {
	follower string
	ackedAt  time.Time
}

// publishUntilKilled publishes follows from four clients, kills the process after a time, and
// returns the follows that were acknowledged.
func publishUntilKilled(t *testing.T, s *serverProcess, client skeinv1connect.EventServiceClient, round int, after time.Duration) (acked []ackedFact) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex // for acked
	var clients sync.WaitGroup
	for c := range 4 {
		clients.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				follower := fmt.Sprintf("c%d-%d", c, i)
				_, err := client.Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{
					Events: []*skeinv1.Event{userFollowed(follower, fmt.Sprint("round", round))},
				}))
				if err != nil {
					return // the process is gone
				}
				mu.Lock()
				acked = append(acked, ackedFact{follower, time.Now()})
				mu.Unlock()
			}
		})
	}

	<-time.After(after)
	s.kill()
	cancel()
	clients.Wait()
	return acked
}

// countLost counts the acknowledged follows that are missing after the restore.
func (l *diskLoss) countLost(t *testing.T, s *serverProcess, round int, acked []ackedFact) {
	t.Helper()
	if len(acked) == 0 {
		t.Fatalf("round %d: got no acknowledged follow, want some", round)
	}
	out := mustSkein(t, s, "skein", "", "query", "scan", fmt.Sprint("round", round))
	isPresent := map[string]bool{}
	for line := range strings.SplitSeq(out, "\n") {
		follower, _, _ := strings.Cut(line, "\t")
		isPresent[follower] = true
	}

	// Follows are acknowledged until the process is killed, so the last one gives the time of the
	// loss.
	lostAt := acked[len(acked)-1].ackedAt
	for _, fact := range acked {
		if !isPresent[fact.follower] {
			l.lostCount++
			l.window = max(l.window, lostAt.Sub(fact.ackedAt))
		}
	}
}
