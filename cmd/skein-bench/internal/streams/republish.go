package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skein-feed/skein/events/wait"
)

// listenBacklog is how many republished messages may wait for a reader. The client drops those beyond it.
const listenBacklog = 2048

// listen reads republished messages, and gets missing ones directly. It has no consumer, and needs no leader but the stream's.
func listen(ctx context.Context, r *reader) {
	msgs := make(chan *nats.Msg, listenBacklog)
	sub, err := r.nc.ChanSubscribe(republish, msgs)
	if err != nil || r.nc.FlushTimeout(askTimeout) != nil {
		return // it never becomes ready
	}
	defer func() { _ = sub.Unsubscribe() }()
	r.ready()
	quiet := time.NewTimer(0) // at first, for all that the stream has
	defer quiet.Stop()
	for {
		select {
		case msg := <-msgs:
			seq, err := strconv.ParseUint(msg.Header.Get("Nats-Sequence"), 10, 64)
			if err == nil && seq > r.last+1 {
				r.fill(ctx, seq-1)
			}
			if err == nil && seq == r.last+1 {
				r.deliver(seq, msg.Data)
			}
			quiet.Reset(heartbeat)
		case <-quiet.C:
			r.fill(ctx, 0)
			quiet.Reset(heartbeat)
		case <-ctx.Done():
			return
		}
	}
}

// fill gets messages up to one that exists; 0 stands for the last one that a replica has. If a replica lags or does not answer, it
// asks again.
func (r *reader) fill(ctx context.Context, to uint64) {
	for ctx.Err() == nil && (to == 0 || r.last < to) {
		more, err := r.getBatch(ctx, to)
		switch {
		case err == nil && to == 0 && !more:
			return
		case err != nil && to == 0:
			return // the next message or the next silence begins again
		case err != nil || !more:
			_ = wait.For(ctx, firstRetry/5)
		}
	}
}

// getBatch gets messages after the last, and reports whether the replica has more of them.
func (r *reader) getBatch(ctx context.Context, to uint64) (more bool, err error) {
	batch := uint64(pullMessages)
	if to > 0 {
		batch = min(batch, to-r.last)
	}
	request, err := json.Marshal(map[string]uint64{"seq": r.last + 1, "batch": batch, "max_bytes": pullBytes})
	if err != nil {
		return false, err
	}
	inbox := r.nc.NewInbox()
	msgs := make(chan *nats.Msg, batch+1)
	sub, err := r.nc.ChanSubscribe(inbox, msgs)
	if err != nil {
		return false, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := r.nc.PublishRequest("$JS.API.DIRECT.GET."+streamName, inbox, request); err != nil {
		return false, err
	}
	silence := time.NewTimer(lostAfter)
	defer silence.Stop()
	for {
		silence.Reset(lostAfter)
		select {
		case msg := <-msgs:
			switch status := msg.Header.Get("Status"); status {
			case "":
			case "204":
				return msg.Header.Get("Nats-Num-Pending") != "0", nil
			case "404":
				return false, nil
			default:
				return false, fmt.Errorf("a direct get is answered by %s %s", status, msg.Header.Get("Description"))
			}
			seq, err := strconv.ParseUint(msg.Header.Get("Nats-Sequence"), 10, 64)
			if err != nil || seq != r.last+1 {
				return false, errLost
			}
			r.deliver(seq, msg.Data)
			r.fetched.Add(1)
		case <-silence.C:
			return false, errors.New("a direct get is not answered")
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}
