package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/verify"
)

// Store is a live store that can be audited and repaired.
type Store interface {
	Viewer
	verify.Store
}

// Config says what an auditor looks after.
type Config struct {
	// Graph, Inbox and Counters are audited against each other.
	Graph, Inbox, Counters Store
	// All are the stores that shadows verify, by the names of their projections: those three, and others.
	All map[string]Store
	// Shadow returns what is needed for a shadow of a projection: a new instance, the log, a directory of its own.
	Shadow func(projection string) verify.Options
	// Subscribe reads the log, to learn what was written lately.
	Subscribe projections.SubscribeFunc
	// Share is the part of one core's time that audits, shadows and repairs may take together. Default 0.05.
	Share float64
	// Queue is how many entities that were written lately may wait; more are left to the round. Default 10000.
	Queue int
	// Limits bound the check of an entity that was written lately. In the round everything is read but of feeds, of which
	// the limit is kept. Default 10000 entries of a list and 200 of a feed.
	Limits Limits
	// DiskRetry is how long findings wait for disk before it is looked again. Default a minute.
	DiskRetry time.Duration
	// Logger gets what a person must see; nil means nothing.
	Logger *slog.Logger
	// Observe is called after every verification, repair and round, and when a finding could not be explained; nil disables it.
	// It must be quick.
	Observe func(Status)
}

// Status is what an auditor has done since it was started.
type Status struct {
	// Checks of entities were made. Queued ones wait, Dropped ones found the queue full and were left to the round.
	Checks, Dropped uint64
	Queued          int
	// Findings are disagreements that were seen again at another position, by each of the projections that may be wrong.
	Findings map[string]uint64
	// Unexplained are those of them that no repair changed: a fold is wrong.
	Unexplained uint64
	// Waiting are findings for whose repair there is no disk. It is tried again after [Config.DiskRetry].
	Waiting int
	// NoDisk has the projections that are not verified for lack of disk, and how much that takes.
	NoDisk map[string]string
	// Differences from the log were found in stores, and Repaired rows of them, by projection.
	Differences, Repaired map[string]uint64
	// Verified is when a projection was last found, or made, equal to the log, and in At the position.
	Verified   map[string]time.Time
	VerifiedAt map[string]uint64
	// Partition is where the round is. Rounds were finished, the last at LastRound after LastTook.
	Partition int
	Rounds    uint64
	LastRound time.Time
	LastTook  time.Duration
	// LastFinding is the last one in words.
	LastFinding string
}

// Auditor audits, verifies and repairs stores for as long as it runs.
type Auditor struct {
	cfg  Config
	pace replay.Pace
	// repairs gets the projections that are to be repaired, and who waits for the outcome.
	repairs chan repairOrder
	// written says that something was put into the queue since the last pause between rounds.
	written chan struct{}
	// firstTurn is that of the first round. It is drawn, so that a process that is often restarted does not always read the same.
	firstTurn uint64
	// owed is how long was audited since the last rest; it belongs to the goroutine of the audits.
	owed time.Duration

	mu     sync.Mutex
	status Status
	queue  []Entity
	queued map[Entity]struct{}
	// unexplained are entities about which people were told in this round.
	unexplained map[Entity]struct{}
	// waiting are findings for whose repair there was no disk; it is tried again at tryAt.
	waiting []Finding
	tryAt   time.Time
	// repairStore is [verify.Repair]; a test looks at what it is asked for.
	repairStore func(context.Context, verify.Store, verify.Options) (*verify.Report, error)
}

type repairOrder struct {
	projections []string
	done        chan error
}

// NewAuditor returns an auditor, which works while [Auditor.Run] runs.
func NewAuditor(c Config) *Auditor {
	if c.Share <= 0 {
		c.Share = 0.05
	}
	if c.Queue <= 0 {
		c.Queue = 10_000
	}
	if c.Limits == (Limits{}) {
		c.Limits = Limits{List: 10_000, Feed: 200}
	}
	if c.DiskRetry <= 0 {
		c.DiskRetry = time.Minute
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Auditor{
		cfg: c, repairs: make(chan repairOrder), written: make(chan struct{}, 1), queued: map[Entity]struct{}{},
		unexplained: map[Entity]struct{}{}, repairStore: verify.Repair, firstTurn: rand.Uint64N(turns),
		// Audits and shadows continue side by side, each with one half.
		pace: replay.Pace{Share: min(c.Share, 1) / 2},
		status: Status{
			Findings: map[string]uint64{}, Differences: map[string]uint64{}, Repaired: map[string]uint64{},
			NoDisk:   map[string]string{},
			Verified: map[string]time.Time{}, VerifiedAt: map[string]uint64{},
		},
	}
}

// Status says what was done so far.
func (a *Auditor) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.status
	s.Queued, s.Waiting = len(a.queue), len(a.waiting)
	s.NoDisk = maps.Clone(s.NoDisk)
	s.Findings, s.Differences, s.Repaired = maps.Clone(s.Findings), maps.Clone(s.Differences), maps.Clone(s.Repaired)
	s.Verified, s.VerifiedAt = maps.Clone(s.Verified), maps.Clone(s.VerifiedAt)
	return s
}

// observe says what was done so far to whoever wants to know at once.
func (a *Auditor) observe() {
	if a.cfg.Observe != nil {
		a.cfg.Observe(a.Status())
	}
}

func (a *Auditor) note(f func(*Status)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(&a.status)
}

// retryAfter is the pause after an audit or a shadow that failed, as when a store has stopped.
const retryAfter = 10 * time.Second

// Run audits until the context ends, which is no error. Stores that fail are tried again: they come back by a rebuild.
func (a *Auditor) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for name, work := range map[string]func(context.Context) error{
		"queue": a.follow, "audit": a.audit, "shadow": a.shadows,
	} {
		wg.Go(func() {
			for ctx.Err() == nil {
				err := work(ctx)
				if ctx.Err() != nil {
					return
				}
				a.cfg.Logger.Warn("the auditor tries again", "part", name, "in", retryAfter, "error", err)
				_ = wait.For(ctx, retryAfter) // the loop ends with the context
			}
		})
	}
	wg.Wait()
	return nil
}

// follow queues what is written.
func (a *Auditor) follow(ctx context.Context) error {
	v, err := a.cfg.Graph.View()
	if err != nil {
		return err
	}
	from := v.Cursor()
	if err := v.Close(); err != nil {
		return err
	}
	sub, err := a.cfg.Subscribe(from)
	if err != nil {
		return err
	}
	defer sub.Close()
	for {
		envs, err := sub.Next(ctx, 1<<20)
		if err != nil {
			return err
		}
		a.enqueue(envs)
	}
}

// enqueue puts the entities of events into the queue, each once.
func (a *Auditor) enqueue(envs []*events.Envelope) {
	a.mu.Lock()
	defer a.mu.Unlock()
	add := func(e Entity) {
		if _, ok := a.queued[e]; ok {
			return
		}
		if len(a.queue) >= a.cfg.Queue {
			a.status.Dropped++
			return
		}
		a.queued[e] = struct{}{}
		a.queue = append(a.queue, e)
		select {
		case a.written <- struct{}{}:
		default:
		}
	}
	for _, env := range envs {
		for i := range env.Events {
			ev := &env.Events[i]
			if ofItems(ev.Kind) {
				continue
			}
			owner := ev.User
			if ev.Peer != "" {
				owner = ev.Peer
				add(Entity{User: ev.Peer})
			}
			if ev.User != "" {
				add(Entity{User: ev.User})
			}
			if ev.Board != "" && owner != "" {
				add(Entity{User: owner, Board: ev.Board, OfBoard: true})
			}
		}
	}
}

// ofItems reports whether a kind changes nothing that two stores have.
func ofItems(k events.Kind) bool {
	return events.Kinds(events.Played, events.Served, events.SeenCleared, events.Liked, events.Unliked, events.ItemScored).Has(k)
}

// take returns up to n entities that were written lately.
func (a *Auditor) take(n int) []Entity {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := slices.Clone(a.queue[:min(n, len(a.queue))])
	a.queue = slices.Delete(a.queue, 0, len(taken))
	for _, e := range taken {
		delete(a.queued, e)
	}
	return taken
}

// open opens an audit of the three stores.
func (a *Auditor) open(ctx context.Context, l Limits) (*Audit, error) {
	return Open(ctx, a.cfg.Graph, a.cfg.Inbox, a.cfg.Counters, l)
}

// named wraps an error of one kind of work.
func named(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// stopped reports whether a store does not serve now.
func stopped(err error) bool {
	return errors.Is(err, projections.ErrStopped) || errors.Is(err, projections.ErrNotReady)
}
