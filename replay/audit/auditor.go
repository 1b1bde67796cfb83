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

// Config configures an [Auditor]: which stores it audits, and how much it may use.
type Config struct {
	// Graph, Inbox and Counters are audited against each other.
	Graph, Inbox, Counters Store
	// All are the stores that are verified by shadows, by the names of their projections. They
	// include those three.
	All map[string]Store
	// Shadow returns options for a shadow of a projection: a constructor, the log and a scratch
	// directory.
	Shadow func(projection string) verify.Options
	// Subscribe subscribes to the log. The auditor audits users and boards of new events first.
	Subscribe store.SubscribeFunc
	// Share is the share of one core that audits, shadows and repairs may use together. Default
	// 0.05.
	Share float64
	// Queue is how many recently written entities may wait for their check. Further ones are not
	// queued, but the round reaches them. Default 10000.
	Queue int
	// Limits limit the check of a recently written entity. The round only keeps the limit of feeds,
	// and reads whole lists. Default 10000 entries per list and 200 per feed.
	Limits Limits
	// DiskRetry is the pause before a repair for which there was too little free disk is tried
	// again. Default one minute.
	DiskRetry time.Duration
	// Logger receives messages for people; nil discards them.
	Logger *slog.Logger
	// Observe is called after every verification, repair and round, and when a repair has not
	// removed a finding. It must return quickly. It may be nil.
	Observe func(Status)
}

// Status is what an auditor has done since it started.
type Status struct {
	// Checks is the number of checks of entities.
	Checks uint64
	// Dropped is the number of written entities for which the queue had no space, so that they were
	// left to the round.
	Dropped uint64
	// Queued is the number of written entities that wait now.
	Queued int
	// Findings counts the disagreements that a second check at another position has confirmed, per
	// projection that may be wrong.
	Findings map[string]uint64
	// Unexplained counts the findings that remained after the repair. They mean that a fold is
	// wrong.
	Unexplained uint64
	// Waiting is the number of findings that wait for free disk. Their repair is tried again after
	// [Config.DiskRetry].
	Waiting int
	// NoDisk has the projections that are not verified because there is too little free disk, with
	// an error that says how much is missing.
	NoDisk map[string]string
	// Differences counts the rows that differed from the log, and Repaired those that were
	// repaired, per projection.
	Differences, Repaired map[string]uint64
	// Verified is when a projection was last equal to the log, possibly after a repair. VerifiedAt
	// is the sequence at which it was.
	Verified   map[string]time.Time
	VerifiedAt map[string]uint64
	// Partition is the partition that the round has reached. Rounds is the number of completed
	// rounds.
	Partition int
	Rounds    uint64
	// LastRound is when the last round was completed, and LastTook how long it took.
	LastRound time.Time
	LastTook  time.Duration
	// LastFinding is the last confirmed finding, as text for people.
	LastFinding string
}

// Auditor audits, verifies and repairs stores for as long as it runs. Three goroutines do the work:
// one queues written entities, one audits, and one builds shadows and repairs.
type Auditor struct {
	cfg  Config
	pace replay.Pace
	// repairs passes repairs from the auditing goroutine to the one of the shadows, which performs
	// them.
	repairs chan repairRequest
	// written wakes up the auditing goroutine during the pause between two rounds when an entity is
	// queued. Its buffer of one keeps the wake-up, so that queueing never waits.
	written chan struct{}
	// firstTurn is the [Limits].FeedTurn of the first round. It is random, so that a process that
	// is often restarted does not always check the same users.
	firstTurn uint64
	// unrestedWork is the time worked since the last rest. Only the auditing goroutine uses it.
	unrestedWork time.Duration

	// mu guards the fields below, except repairStore.
	mu     sync.Mutex
	status Status
	// verification is the verification or repair that is under way, or nil.
	verification *verification
	// queue has the written entities that wait for their check, oldest first.
	queue []Entity
	// queued has the entities of queue, to queue each only once.
	queued map[Entity]struct{}
	// unexplained are the entities whose unexplained findings were logged in this round. They are
	// not logged again in this round.
	unexplained map[Entity]struct{}
	// waitingForDisk are findings whose repair found too little free disk. It is tried again at
	// nextRetry.
	waitingForDisk []Finding
	nextRetry      time.Time
	// repairStore is [verify.Repair]. A test replaces it.
	repairStore func(context.Context, verify.Store, verify.Options) (*verify.Report, error)
}

// repairRequest asks for the repair of some projections. Their joined errors are sent to done. It
// has a buffer of one, because the requester no longer receives if its context has ended.
type repairRequest struct {
	projections []string
	done        chan error
}

// NewAuditor returns an auditor. It works only while [Auditor.Run] runs.
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
		cfg:         c,
		repairs:     make(chan repairRequest),
		written:     make(chan struct{}, 1),
		queued:      map[Entity]struct{}{},
		unexplained: map[Entity]struct{}{},
		repairStore: verify.Repair,
		firstTurn:   rand.Uint64N(FeedTurns),
		// Audits and shadows run at the same time, each with half of the share.
		pace: replay.Pace{Share: min(c.Share, 1) / 2},
		status: Status{
			Findings: map[string]uint64{}, Differences: map[string]uint64{}, Repaired: map[string]uint64{},
			NoDisk:   map[string]string{},
			Verified: map[string]time.Time{}, VerifiedAt: map[string]uint64{},
		},
	}
}

// Status returns what the auditor has done so far.
func (a *Auditor) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.status
	s.Queued = len(a.queue)
	s.Waiting = len(a.waitingForDisk)

	// The auditor changes the maps while the caller reads them, so the caller gets copies.
	s.NoDisk = maps.Clone(s.NoDisk)
	s.Findings = maps.Clone(s.Findings)
	s.Differences = maps.Clone(s.Differences)
	s.Repaired = maps.Clone(s.Repaired)
	s.Verified = maps.Clone(s.Verified)
	s.VerifiedAt = maps.Clone(s.VerifiedAt)
	return s
}

// notifyObserver calls Config.Observe with the current status.
func (a *Auditor) notifyObserver() {
	if a.cfg.Observe != nil {
		a.cfg.Observe(a.Status())
	}
}

// updateStatus calls f with the status, which f may change.
func (a *Auditor) updateStatus(f func(*Status)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(&a.status)
}

// retryDelay is the pause after an audit or a shadow has failed, for example because a store has
// stopped.
const retryDelay = 10 * time.Second

// Run audits until ctx ends and then returns nil. If a part fails, Run starts it again after a
// pause: a rebuild may have replaced a store.
func (a *Auditor) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for name, work := range map[string]func(context.Context) error{
		"queue": a.queueWrittenEntities, "audit": a.runRounds, "shadow": a.verifyAll,
	} {
		wg.Go(func() {
			for ctx.Err() == nil {
				err := work(ctx) // returns only if it fails
				if ctx.Err() != nil {
					return
				}
				a.cfg.Logger.Warn("the auditor tries again", "part", name, "in", retryDelay, "error", err)
				_ = wait.For(ctx, retryDelay) // if ctx ends, so does the loop
			}
		})
	}
	wg.Wait()
	return nil
}

// maxReadBytes is how many bytes of the log queueWrittenEntities reads at a time.
const maxReadBytes = 1 << 20

// queueWrittenEntities reads the log from the position of the graph on and queues the entities of
// all events.
func (a *Auditor) queueWrittenEntities(ctx context.Context) error {
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
		envs, err := sub.Next(ctx, maxReadBytes)
		if err != nil {
			return err
		}
		a.enqueue(envs)
	}
}

// enqueue queues the entities of events, unless they are queued already or the queue is full.
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
		default: // a wake-up is pending already
		}
	}
	for _, env := range envs {
		for i := range env.Events {
			ev := &env.Events[i]
			if isOneStoreKind(ev.Kind) {
				continue
			}

			if ev.Peer != "" {
				add(Entity{User: ev.Peer})
			}
			if ev.User != "" {
				add(Entity{User: ev.User})
			}

			// In an event with a Peer, such as the follow of a board, the board is Peer's.
			owner := ev.User
			if ev.Peer != "" {
				owner = ev.Peer
			}
			if ev.Board != "" && owner != "" {
				add(Entity{User: owner, Board: ev.Board, OfBoard: true})
			}
		}
	}
}

// isOneStoreKind reports whether events of a kind change only rows that a single store has, so that
// there is nothing to compare.
func isOneStoreKind(k events.Kind) bool {
	return k.Topic() == events.TopicSeen || k.Topic() == events.TopicItems
}

// takeQueued removes up to n entities from the queue and returns them.
func (a *Auditor) takeQueued(n int) []Entity {
	a.mu.Lock()
	defer a.mu.Unlock()

	taken := slices.Clone(a.queue[:min(n, len(a.queue))])
	a.queue = slices.Delete(a.queue, 0, len(taken))
	for _, e := range taken {
		delete(a.queued, e)
	}
	return taken
}

// openAudit opens an audit of the three stores.
func (a *Auditor) openAudit(ctx context.Context, l Limits) (*Audit, error) {
	return Open(ctx, a.cfg.Graph, a.cfg.Inbox, a.cfg.Counters, l)
}

// wrapError adds the work that failed to an error; nil stays nil.
func wrapError(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// isStoreUnavailable reports whether the error means that a store does not serve now.
func isStoreUnavailable(err error) bool {
	return errors.Is(err, projections.ErrStopped) || errors.Is(err, projections.ErrNotReady)
}
