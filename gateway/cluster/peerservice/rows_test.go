package peerservice_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/cluster/peerservice"
	peerv1 "github.com/skein-feed/skein/proto/skein/peer/v1"
)

// row is a row of a store. Its fields are exported for cmp.
type row struct{ Key, Value string }

// fakeStoreAccess is a StoreAccess that only has rows.
type fakeStoreAccess struct {
	peerservice.StoreAccess
	rows []row
}

func (f fakeStoreAccess) Rows(
	_ context.Context, _, _ string, _ uint32, _ events.Partitions, do func(key, value []byte) error,
) error {
	for _, r := range f.rows {
		if err := do([]byte(r.Key), []byte(r.Value)); err != nil {
			return err
		}
	}
	return nil
}

// sendRows calls Rows of a StoreService that has the given rows.
func sendRows(t *testing.T, rows []row, send func(*peerv1.RowsResponse) error) {
	t.Helper()
	all := events.AllPartitions()
	s := peerservice.StoreService{Access: fakeStoreAccess{rows: rows}}
	if err := s.Rows(t.Context(), &peerv1.RowsRequest{Partitions: all.String()}, send); err != nil {
		t.Fatal(err)
	}
}

func TestRowsArriveAsSent(t *testing.T) {
	// Together the values have more than a megabyte, which is too much for one part.
	var want []row
	for i := range 50 {
		want = append(want, row{fmt.Sprint(i), strings.Repeat("v", i*1000)})
	}

	var got []row
	parts := 0
	sendRows(t, want, func(part *peerv1.RowsResponse) error {
		parts++
		return peerservice.EachRow(part, func(key, value []byte) error {
			got = append(got, row{string(key), string(value)})
			return nil
		})
	})

	if parts < 2 {
		t.Errorf("parts in which the rows came: got %d, want at least 2", parts)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-sent +received):\n%s", diff)
	}
}

func TestEachRowReturnsErrors(t *testing.T) {
	// The part is only valid during the call, so its bytes are copied.
	part := &peerv1.RowsResponse{}
	sendRows(t, []row{{"key", "value"}}, func(p *peerv1.RowsResponse) error {
		part.Rows = bytes.Clone(p.GetRows())
		return nil
	})
	if len(part.GetRows()) < 2 {
		t.Fatalf("bytes of the row: got %d, want some that can be truncated", len(part.GetRows()))
	}

	t.Run("a truncated part", func(t *testing.T) {
		ignoreRow := func(_, _ []byte) error { return nil }
		for n := 1; n < len(part.GetRows()); n++ {
			truncated := &peerv1.RowsResponse{Rows: part.GetRows()[:n]}
			if err := peerservice.EachRow(truncated, ignoreRow); err == nil {
				t.Errorf("EachRow of the first %d of %d bytes: got no error, want one", n, len(part.GetRows()))
			}
		}
	})
	t.Run("an error of the caller", func(t *testing.T) {
		errFull := errors.New("full")
		err := peerservice.EachRow(part, func(_, _ []byte) error { return errFull })
		if !errors.Is(err, errFull) {
			t.Errorf("EachRow: got the error %v, want %v", err, errFull)
		}
	})
}
