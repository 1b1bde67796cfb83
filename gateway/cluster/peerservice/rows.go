package peerservice

import (
	"context"
	"encoding/binary"
	"errors"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	peerv1 "github.com/skein-feed/skein/proto/skein/peer/v1"
)

// rowsPartBytes is the size at which a part of the answer is sent. A part may be larger by one row.
const rowsPartBytes = 256 << 10

// Rows sends the rows of some partitions, in parts. In a part, each row consists of the length of
// its key, the key, the length of its value, and the value. Lengths are uvarints. [EachRow] reads
// the rows of a part.
func (s StoreService) Rows(
	ctx context.Context, req *peerv1.RowsRequest, send func(*peerv1.RowsResponse) error,
) error {
	partitions, err := events.ParsePartitions(req.GetPartitions())
	if err != nil {
		return apierror.Invalid(apierror.InvalidField("partitions", "%s", err))
	}

	var part []byte
	addRow := func(key, value []byte) error {
		part = appendSized(part, key)
		part = appendSized(part, value)
		if len(part) < rowsPartBytes {
			return nil
		}
		err := send(&peerv1.RowsResponse{Rows: part})
		part = part[:0] // send has encoded the message, so the buffer is free again
		return err
	}
	err = s.Access.Rows(ctx, req.GetProjection(), req.GetFold(), req.GetEpoch(), partitions, addRow)
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, err) // the caller then builds the rows from the log
	}
	return send(&peerv1.RowsResponse{Rows: part})
}

// appendSized appends the length of b, and b.
func appendSized(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

var errTruncatedRows = errors.New("rows are cut")

// EachRow calls do with each row of a part. The slices are valid as long as the part is.
func EachRow(part *peerv1.RowsResponse, do func(key, value []byte) error) error {
	rest := part.GetRows()
	for len(rest) > 0 {
		key, afterKey, ok := cutSized(rest)
		if !ok {
			return errTruncatedRows
		}
		value, afterValue, ok := cutSized(afterKey)
		if !ok {
			return errTruncatedRows
		}
		if err := do(key, value); err != nil {
			return err
		}
		rest = afterValue
	}
	return nil
}

// cutSized returns what appendSized has appended, and the bytes after it. ok is false if b is
// truncated.
func cutSized(b []byte) (sized, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, nil, false
	}
	end := n + int(size)
	return b[n:end], b[end:], true
}
