package peerservice

import (
	"context"

	"github.com/skein-feed/skein/events"
	peerv1 "github.com/skein-feed/skein/proto/skein/peer/v1"
)

// Keeper keeps the stores of a node, and does what other nodes ask of it besides answers. An error of Flush and Clean says what stands
// against an erasure, for people; a call that is not done is to be made again.
type Keeper interface {
	// Flush has the stores fold the log up to a deletion, and flush. With the sequence 0 it says whether the node can take part.
	Flush(ctx context.Context, epoch uint32, seq uint64) (done bool, err error)
	// Clean reports whether the stores were built from the log of an epoch.
	Clean(ctx context.Context, epoch uint32) (done bool, err error)
	// Rows calls do with the rows of some partitions of a projection and those of the store as a whole, in the order of their keys, as they
	// are at one position. It fails unless the fold is this one, and nothing of it was scrubbed from the log before the epoch.
	Rows(ctx context.Context, projection, fold string, epoch uint32, of events.Partitions, do func(key, value []byte) error) error
}

// KeeperService answers the methods about stores.
type KeeperService struct{ Keeper Keeper }

// Flush answers for the stores of this node.
func (k KeeperService) Flush(ctx context.Context, req *peerv1.FlushRequest) (*peerv1.FlushResponse, error) {
	done, err := k.Keeper.Flush(ctx, req.GetEpoch(), req.GetSeq())
	return &peerv1.FlushResponse{Done: done && err == nil, Why: errorText(err)}, ctx.Err()
}

// Clean answers for the stores of this node.
func (k KeeperService) Clean(ctx context.Context, req *peerv1.CleanRequest) (*peerv1.CleanResponse, error) {
	done, err := k.Keeper.Clean(ctx, req.GetEpoch())
	return &peerv1.CleanResponse{Done: done && err == nil, Why: errorText(err)}, ctx.Err()
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
