package admission

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Shedder refuses a part of the calls while those that come wait long until they are begun. Calls that are accepted without end
// would all be answered after their callers have given up. So some are refused at once, with a delay for a retry, and the others are
// answered in time.
//
//	every shedPeriod: a byte into a pipe ─▶ how long until who reads it runs?
//	                                         ├ above the limit, again and again: refuse more
//	                                         └ below: refuse less, slowly
//
// The byte goes the way of a request: from the kernel to the network poller of Go, and then to the scheduler. It is there that calls
// queue when the processors are the bottleneck, most of them in the kernel: the scheduler alone knows of the few that the poller
// has taken. Calls that wait for the disk, for a position or for the client wait elsewhere, and shed nothing.
type Shedder struct {
	// Limit is 0 or negative to refuse nothing.
	Limit time.Duration
	// above counts the waits in succession that were above the limit. Of observe only.
	above int
	// share is the bits of the part of calls that are refused: a float64 from 0 to maxShare. Written by observe only.
	share atomic.Uint64
	// Refused counts.
	Refused atomic.Uint64
}

const (
	shedPeriod = 100 * time.Millisecond
	// shedPatience is how many waits above the limit are let pass: one may be a pause of the whole machine.
	shedPatience = 2
	// maxShare lets some calls through at any time: without calls the shedder would not notice that the load has gone.
	maxShare = 0.98
	// shedStep of the calls that were let through are refused besides after a wait above the limit; after one below it
	// the share falls to calmStep of itself, and below leastShare to nothing. Rising faster than falling keeps waits below the limit.
	shedStep, calmStep, leastShare = 0.2, 0.9, 0.005
)

// Run observes until ctx ends.
func (d *Shedder) Run(ctx context.Context, log *slog.Logger) {
	if d.Limit <= 0 {
		return
	}
	r, w, err := os.Pipe()
	if err != nil {
		log.Error("no calls are shed", "error", err)
		return
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	defer r.Close()
	defer w.Close()
	arrived := make(chan time.Time, 1)
	reading.Go(func() {
		for b := make([]byte, 1); ; {
			if n, err := r.Read(b); n == 0 || err != nil {
				return
			}
			arrived <- time.Now()
		}
	})
	tick := time.NewTicker(shedPeriod)
	defer tick.Stop()
	var sent time.Time // of the byte that has not arrived; zero: there is none
	for {
		select {
		case at := <-arrived:
			d.Observe(at.Sub(sent))
			sent = time.Time{}
		case now := <-tick.C:
			if !sent.IsZero() {
				if d.Limit < now.Sub(sent) {
					d.Observe(now.Sub(sent)) // so long already
				}
				continue
			}
			sent = time.Now()
			if _, err := w.Write([]byte{0}); err != nil {
				log.Error("no calls are shed any more", "error", err)
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// Observe takes how long something that came had to wait.
func (d *Shedder) Observe(wait time.Duration) {
	share := d.Part()
	if wait > d.Limit {
		if d.above++; d.above > shedPatience {
			share = min(share+(1-share)*shedStep, maxShare)
		}
	} else {
		d.above = 0
		if share *= calmStep; share < leastShare {
			share = 0
		}
	}
	d.share.Store(math.Float64bits(share))
}

// Part returns the part of calls that are refused.
func (d *Shedder) Part() float64 { return math.Float64frombits(d.share.Load()) }

// Admit refuses a call by chance.
func (d *Shedder) Admit() *apierror.Failure {
	if d.share.Load() == 0 || rand.Float64() >= d.Part() {
		return nil
	}
	d.Refused.Add(1)
	return &apierror.Failure{
		Code: connect.CodeResourceExhausted, Reason: skeinv1.Reason_REASON_OVERLOADED,
		Text: "the service is asked for more than its processors can do; nothing was done", Retry: apierror.RetrySoon,
	}
}
