package peerservice

import (
	"context"

	"github.com/skein-feed/skein/events"
	peerv1 "github.com/skein-feed/skein/proto/skein/peer/v1"
)

// StoreAccess gives other nodes access to the stores of a node, for erasures of users and for
// copies of partitions. If Flush or Clean returns false and no error, it must be called again
// later. The text of an error of Flush or Clean is for people: it says what prevents the erasure.
type StoreAccess interface {
	// Flush makes the stores fold the log up to the deletion at seq, and flush to disk. With seq 0
	// it only checks whether the node can take part in an erasure.
	Flush(ctx context.Context, epoch uint32, seq uint64) (done bool, err error)
	// Clean reports whether the stores were built from the log of the epoch, or of a later one. If
	// not, it makes sure that they are rebuilt soon.
	Clean(ctx context.Context, epoch uint32) (done bool, err error)
	// Rows calls do with the rows of some partitions of a projection, and with those rows that
	// belong to no partition, in the order of their keys and as of one position. It fails if the
	// hash of the projection's fold is not foldHash, or if the store may contain rows that were
	// scrubbed from the log before the epoch.
	Rows(
		ctx context.Context, projection, foldHash string, epoch uint32, partitions events.Partitions,
		do func(key, value []byte) error,
	) error
}

// StoreService answers the calls of other nodes about the stores of this node.
type StoreService struct{ Access StoreAccess }

// Flush calls [StoreAccess.Flush]. If that fails, the answer has the text of the error, so that the
// node that erases the user can show it.
func (s StoreService) Flush(ctx context.Context, req *peerv1.FlushRequest) (*peerv1.FlushResponse, error) {
	done, err := s.Access.Flush(ctx, req.GetEpoch(), req.GetSeq())
	return &peerv1.FlushResponse{Done: done && err == nil, Why: errorText(err)}, ctx.Err()
}

// Clean calls [StoreAccess.Clean]. If that fails, the answer has the text of the error.
func (s StoreService) Clean(ctx context.Context, req *peerv1.CleanRequest) (*peerv1.CleanResponse, error) {
	done, err := s.Access.Clean(ctx, req.GetEpoch())
	return &peerv1.CleanResponse{Done: done && err == nil, Why: errorText(err)}, ctx.Err()
}

// errorText returns the text of an error, or "" for nil.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
