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
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/verify"
)

// Store is a live store that can be audited and repaired.
type Store interface {
	Viewer
	verify.Store
}

// Config says which stores an auditor checks, and how much it may take.
type Config struct {
	// Graph, Inbox and Counters are audited against each other.
	Graph, Inbox, Counters Store
	// All are the stores that shadows verify, by the names of their projections: those three, and others.
	All map[string]Store
	// Shadow returns the options for a shadow of a projection: a new instance, the log, a scratch directory.
	Shadow func(projection string) verify.Options
	// Subscribe reads the log. The auditor checks the entities of new events first.
	Subscribe store.SubscribeFunc
	// Share is the part of one core's time that audits, shadows and repairs may take together. Default 0.05.
	Share float64
	// Queue is the number of recently written entities that may wait. Those beyond it are left to the round. Default 10000.
	Queue int
	// Limits bound the check of a recently written entity. The round reads lists completely, and keeps only the limit of feeds.
	// Default 10000 entries of a list and 200 of a feed.
	Limits Limits
	// DiskRetry is the pause before a repair that found too little free disk is tried again. Default a minute.
	DiskRetry time.Duration
	// Logger gets messages for people; nil disables them.
	Logger *slog.Logger
	// Observe is called after every verification, repair and round, and when a repair has not removed a finding. It must be quick.
	// nil disables it.
	Observe func(Status)
}

// Status is the work of an auditor since its start.
type Status struct {
	// Checks is the number of checks of entities, Dropped the number of entities that found the queue full and were left to the round,
	// Queued the number of entities that wait.
	Checks, Dropped uint64
	Queued          int
	// Findings counts disagreements that a second check at another position has confirmed, for each projection that may be wrong.
	Findings map[string]uint64
	// Unexplained counts findings that remained after the repair: a fold is wrong.
	Unexplained uint64
	// Waiting is the number of findings that wait for disk. Their repair is tried again after [Config.DiskRetry].
	Waiting int
	// NoDisk has the projections that are not verified for lack of disk, each with an error that says how much is missing.
	NoDisk map[string]string
	// Differences counts rows that differed from the log, and Repaired those that were repaired, by projection.
	Differences, Repaired map[string]uint64
	// Verified is the last time at which a projection was equal to the log, maybe after a repair, and VerifiedAt the sequence then.
	Verified   map[string]time.Time
	VerifiedAt map[string]uint64
	// Partition is the partition that the round has reached. Rounds is the number of finished rounds; the last one ended at LastRound
	// and took LastTook.
	Partition int
	Rounds    uint64
	LastRound time.Time
	LastTook  time.Duration
	// LastFinding is the last confirmed finding, for people.
	LastFinding string
}

// Auditor audits, verifies and repairs stores for as long as it runs.
type Auditor struct {
	cfg  Config
	pace replay.Pace
	// repairs hands projections from the goroutine of the audits to that of the shadows, which repairs them.
	repairs chan repairOrder
	// written is signaled when an entity is queued. It ends the pause between two rounds.
	written chan struct{}
	// firstTurn is that of the first round. It is drawn, so that a process that is often restarted does not always read the same.
	firstTurn uint64
	// owed is the work since the last rest. It belongs to the goroutine of the audits.
	owed time.Duration

	mu     sync.Mutex
	status Status
	queue  []Entity
	queued map[Entity]struct{}
	// unexplained are entities whose unexplained findings were logged in this round. They are not reported twice in it.
	unexplained map[Entity]struct{}
	// waiting are findings whose repair found too little free disk. It is tried again at tryAt.
	waiting []Finding
	tryAt   time.Time
	// repairStore is [verify.Repair]; a test replaces it.
	repairStore func(context.Context, verify.Store, verify.Options) (*verify.Report, error)
}

// repairOrder asks for the repair of some projections. done gets the joined errors, and has room for them.
type repairOrder struct {
	projections []string
	done        chan error
}

// NewAuditor returns an auditor. It works while [Auditor.Run] runs.
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
		unexplained: map[Entity]struct{}{}, repairStore: verify.Repair, firstTurn: rand.Uint64N(Turns),
		// Audits and shadows run side by side, each with one half.
		pace: replay.Pace{Share: min(c.Share, 1) / 2},
		status: Status{
			Findings: map[string]uint64{}, Differences: map[string]uint64{}, Repaired: map[string]uint64{},
			NoDisk:   map[string]string{},
			Verified: map[string]time.Time{}, VerifiedAt: map[string]uint64{},
		},
	}
}

// Status returns the work so far.
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

// observe calls Config.Observe with the work so far.
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

// retryAfter is the pause after an audit or a shadow has failed, for example because a store has stopped.
const retryAfter = 10 * time.Second

// Run audits until the context ends, then returns nil. After an error of a store it tries again: a rebuild brings the store back.
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

// follow reads the log, and queues the entities of its events.
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

// ofItems reports whether events of a kind change only rows that a single store has, so that there is nothing to compare.
func ofItems(k events.Kind) bool {
	return k.Topic() == events.TopicSeen || k.Topic() == events.TopicItems
}

// take removes up to n entities from the queue.
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

// named wraps an error with the work that failed; nil stays nil.
func named(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// stopped reports whether an error says that a store does not serve now.
func stopped(err error) bool {
	return errors.Is(err, projections.ErrStopped) || errors.Is(err, projections.ErrNotReady)
}
