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

// rowsBytes is about the size of a part of the answer.
const rowsPartBytes = 256 << 10

// Rows answers with the rows of some partitions.
func (k KeeperService) Rows(ctx context.Context, req *peerv1.RowsRequest, send func(*peerv1.RowsResponse) error) error {
	of, err := events.ParsePartitions(req.GetPartitions())
	if err != nil {
		return apierror.Invalid(apierror.InvalidField("partitions", "%s", err))
	}
	var part []byte
	err = k.Keeper.Rows(ctx, req.GetProjection(), req.GetFold(), req.GetEpoch(), of, func(key, value []byte) error {
		part = appendSized(appendSized(part, key), value)
		if len(part) < rowsPartBytes {
			return nil
		}
		err := send(&peerv1.RowsResponse{Rows: part})
		part = part[:0]
		return err
	})
	if err != nil {
		return connect.NewError(connect.CodeUnavailable, err) // the caller makes the rows itself
	}
	return send(&peerv1.RowsResponse{Rows: part})
}

func appendSized(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

var errTruncatedRows = errors.New("rows are cut")

// EachRow calls do with each row of a part.
func EachRow(part *peerv1.RowsResponse, do func(key, value []byte) error) error {
	for rest := part.GetRows(); len(rest) > 0; {
		var row [2][]byte
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
