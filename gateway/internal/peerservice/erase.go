package peerservice

import (
	"context"

	peerv1 "github.com/skein-feed/skein/proto/skein/peer/v1"
)

// Eraser does what other nodes ask when they erase a user. An error says what stands against it, for people; a call that is not done is
// to be made again.
type Eraser interface {
	// Flush has the stores fold the log up to a deletion, and flush. With the sequence 0 it says whether the node can take part.
	Flush(ctx context.Context, epoch uint32, seq uint64) (done bool, err error)
	// Clean reports whether the stores were built from the log of an epoch.
	Clean(ctx context.Context, epoch uint32) (done bool, err error)
}

// Erasing answers the methods about erasures.
type Erasing struct{ Eraser Eraser }

// Flush answers for the stores of this node.
func (e Erasing) Flush(ctx context.Context, req *peerv1.FlushRequest) (*peerv1.FlushResponse, error) {
	done, err := e.Eraser.Flush(ctx, req.GetEpoch(), req.GetSeq())
	return &peerv1.FlushResponse{Done: done && err == nil, Why: textOf(err)}, ctx.Err()
}

// Clean answers for the stores of this node.
func (e Erasing) Clean(ctx context.Context, req *peerv1.CleanRequest) (*peerv1.CleanResponse, error) {
	done, err := e.Eraser.Clean(ctx, req.GetEpoch())
	return &peerv1.CleanResponse{Done: done && err == nil, Why: textOf(err)}, ctx.Err()
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
