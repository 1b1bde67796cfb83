package eventlog

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// firstEnv is the environment variable with the number of the first event that a child process
// publishes.
const firstEnv = "SKEIN_EVENTS_TEST_FIRST"

// publishUntilKilled runs in a child process. It publishes from several goroutines and prints the
// number of each event that was acknowledged, until the parent kills the process.
func publishUntilKilled(dir string) {
	first, err := strconv.Atoi(os.Getenv(firstEnv))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	l, err := Open(ctx, Config{Dir: dir})
	if err != nil {
		panic(err)
	}
	p, err := l.NewPublisher(PublisherOptions{})
	if err != nil {
		panic(err)
	}

	const publishers = 8
	var wg sync.WaitGroup
	for g := range publishers {
		wg.Go(func() {
			for n := first + g; ; n += publishers {
				if _, err := p.Publish(ctx, []*skeinv1.Event{newFollow(n)}, PublishOptions{}); err != nil {
					panic(err)
				}
				fmt.Println(n) //nolint:forbidigo // the parent reads what was acknowledged
			}
		})
	}

	wg.Wait()
}

// TestKillLosesNoAcknowledgedEvent kills a process that publishes, again and again. Every
// acknowledged event is in the log exactly once.
func TestKillLosesNoAcknowledgedEvent(t *testing.T) {
	kills := 20
	if testing.Short() {
		kills = 2
	}

	dir := t.TempDir()
	acked := make(map[string]bool)
	for k := range kills {
		child := exec.CommandContext(testContext(t), os.Args[0])
		child.Env = append(os.Environ(), childEnv+"="+dir, fmt.Sprintf("%s=%d", firstEnv, k*1_000_000))
		child.Stderr = t.Output()
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}

		// Kill the child after it has printed some lines, and read what it has printed until then.
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			acked[lines.Text()] = true
			if n == 40+17*k {
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}

		_ = child.Wait() // it was killed
	}

	if len(acked) < kills*40 {
		t.Fatalf("acknowledged events: got %d, want at least %d", len(acked), kills*40)
	}

	seen := countFollowers(readWholeLog(t, mustOpenLog(t, Config{Dir: dir})))
	for id := range acked {
		if seen[id] != 1 {
			t.Errorf("acknowledged event %s: got it %d times in the log, want once", id, seen[id])
		}
	}

	t.Logf("%d acknowledged, %d in the log after %d kills", len(acked), len(seen), kills)
}
