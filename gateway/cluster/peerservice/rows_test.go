package peerservice_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/cluster/peerservice"
	peerv1 "github.com/skein-feed/skein/proto/skein/peer/v1"
)

// fakeStoreAccess has rows.
type fakeStoreAccess struct {
	peerservice.StoreAccess
	rows [][2]string
}

func (f fakeStoreAccess) Rows(_ context.Context, _, _ string, _ uint32, _ events.Partitions, do func(key, value []byte) error) error {
	for _, r := range f.rows {
		if err := do([]byte(r[0]), []byte(r[1])); err != nil {
			return err
		}
	}
	return nil
}

// Rows arrive as they were sent, and a truncated part is refused.
func TestRowsArriveAsSent(t *testing.T) {
	var want [][2]string
	for i := range 50 {
		want = append(want, [2]string{fmt.Sprint(i), strings.Repeat("v", i*1000)})
	}
	var got [][2]string
	keep := func(key, value []byte) error {
		got = append(got, [2]string{string(key), string(value)})
		return nil
	}
	parts := 0
	all := events.AllPartitions()
	err := peerservice.StoreService{Access: fakeStoreAccess{rows: want}}.Rows(t.Context(), &peerv1.RowsRequest{Partitions: all.String()},
		func(part *peerv1.RowsResponse) error {
			parts++
			return peerservice.EachRow(part, keep)
		})
	if err != nil || parts < 2 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%d rows in %d parts, error %v", len(got), parts, err)
	}
	part := &peerv1.RowsResponse{}
	one := peerservice.StoreService{Access: fakeStoreAccess{rows: [][2]string{{"key", "value"}}}}
	if err := one.Rows(t.Context(), &peerv1.RowsRequest{Partitions: all.String()}, func(p *peerv1.RowsResponse) error {
		part.Rows = bytes.Clone(p.GetRows())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for n := 1; n < len(part.GetRows()); n++ {
		if err := peerservice.EachRow(&peerv1.RowsResponse{Rows: part.GetRows()[:n]}, keep); err == nil {
			t.Errorf("%d of %d bytes are taken", n, len(part.GetRows()))
		}
	}
	errFull := errors.New("full")
	if err := peerservice.EachRow(part, func(_, _ []byte) error { return errFull }); !errors.Is(err, errFull) {
		t.Errorf("an error of the caller: %v", err)
	}
}
