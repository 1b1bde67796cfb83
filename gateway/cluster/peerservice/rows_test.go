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

// fakeStoreAccess is a StoreAccess that only has rows.
type fakeStoreAccess struct {
	peerservice.StoreAccess
	rows [][2]string
}

func (f fakeStoreAccess) Rows(
	_ context.Context, _, _ string, _ uint32, _ events.Partitions, do func(key, value []byte) error,
) error {
	for _, r := range f.rows {
		if err := do([]byte(r[0]), []byte(r[1])); err != nil {
			return err
		}
	}
	return nil
}

// sendRows calls Rows of a StoreService that has the given rows.
func sendRows(t *testing.T, rows [][2]string, send func(*peerv1.RowsResponse) error) {
	t.Helper()
	all := events.AllPartitions()
	s := peerservice.StoreService{Access: fakeStoreAccess{rows: rows}}
	if err := s.Rows(t.Context(), &peerv1.RowsRequest{Partitions: all.String()}, send); err != nil {
		t.Fatal(err)
	}
}

func TestRowsArriveAsSent(t *testing.T) {
	var want [][2]string
	for i := range 50 {
		want = append(want, [2]string{fmt.Sprint(i), strings.Repeat("v", i*1000)})
	}

	var got [][2]string
	parts := 0
	sendRows(t, want, func(part *peerv1.RowsResponse) error {
		parts++
		return peerservice.EachRow(part, func(key, value []byte) error {
			got = append(got, [2]string{string(key), string(value)})
			return nil
		})
	})

	if parts < 2 {
		t.Errorf("the rows came in %d parts, expected several", parts)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-sent +received):\n%s", diff)
	}
}

func TestEachRowReturnsErrors(t *testing.T) {
	part := &peerv1.RowsResponse{}
	sendRows(t, [][2]string{{"key", "value"}}, func(p *peerv1.RowsResponse) error {
		part.Rows = bytes.Clone(p.GetRows())
		return nil
	})

	t.Run("a truncated part", func(t *testing.T) {
		ignore := func(_, _ []byte) error { return nil }
		for n := 1; n < len(part.GetRows()); n++ {
			if err := peerservice.EachRow(&peerv1.RowsResponse{Rows: part.GetRows()[:n]}, ignore); err == nil {
				t.Errorf("the first %d of %d bytes were accepted, expected an error", n, len(part.GetRows()))
			}
		}
	})
	t.Run("an error of the caller", func(t *testing.T) {
		errFull := errors.New("full")
		err := peerservice.EachRow(part, func(_, _ []byte) error { return errFull })
		if !errors.Is(err, errFull) {
			t.Errorf("got the error %v, expected %v", err, errFull)
		}
	})
}
