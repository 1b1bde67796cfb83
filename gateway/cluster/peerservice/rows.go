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

// Rows sends the rows of some partitions. In a part, each row is the length of its key, the key,
// the length of its value, and the value. Lengths are uvarints.
func (k StoreService) Rows(ctx context.Context, req *peerv1.RowsRequest, send func(*peerv1.RowsResponse) error) error {
	partitions, err := events.ParsePartitions(req.GetPartitions())
	if err != nil {
		return apierror.Invalid(apierror.InvalidField("partitions", "%s", err))
	}

	var part []byte
	err = k.Access.Rows(ctx, req.GetProjection(), req.GetFold(), req.GetEpoch(), partitions, func(key, value []byte) error {
		part = appendSized(appendSized(part, key), value)
		if len(part) < rowsPartBytes {
			return nil
		}
		err := send(&peerv1.RowsResponse{Rows: part})
		part = part[:0]
		return err
	})
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, err) // the caller then builds the rows from the log
	}
	return send(&peerv1.RowsResponse{Rows: part})
}

// appendSized appends the length of b, and b.
func appendSized(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

var errTruncatedRows = errors.New("rows are cut")

// EachRow calls do with each row of a part.
func EachRow(part *peerv1.RowsResponse, do func(key, value []byte) error) error {
	for rest := part.GetRows(); len(rest) > 0; {
		var row [2][]byte // the key and the value
		for i := range row {
			size, n := binary.Uvarint(rest)
			if n <= 0 || size > uint64(len(rest)-n) {
				return errTruncatedRows
			}
			row[i], rest = rest[n:n+int(size)], rest[n+int(size):]
		}
		if err := do(row[0], row[1]); err != nil {
			return err
		}
	}
	return nil
}
