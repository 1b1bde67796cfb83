package main

import (
	"context"
	"fmt"
	"testing"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestErasureContinuesAfterKills kills the service during ten erasures of two users each, each time
// at a later point of the erasure's progress. The erasure must continue after the restart and
// succeed. In the end no file may contain one of the ids, and the other users must follow whom they
// followed.
func TestErasureContinuesAfterKills(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	s := &server{t: t, dir: t.TempDir(), flags: []string{"--archive-every", "100ms"}}
	t.Cleanup(func() { s.kill() })
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	api := (&command.ClientFlags{Server: s.addr}).Client()
	t.Cleanup(api.HTTP.CloseIdleConnections)

	points := 10
	if testing.Short() {
		points = 2
	}
	var users []string
	for i := range 2 * points {
		users = append(users, fmt.Sprintf("to-be-erased-%02d", i))
	}
	for i := range 20 {
		var evs []*skeinv1.Event
		for _, user := range users {
			evs = append(evs, userFollowed(user, fmt.Sprint("u", i)), userFollowed(fmt.Sprint("u", i), user))
		}
		publish(t, api, append(evs, userFollowed("ann", fmt.Sprint("u", i)))...)
	}

	for point := range points {
		var op *skeinv1.Operation
		if err := eventually(ctx, func(ctx context.Context) error { // until the service archives
			res, err := api.Admin().EraseUser(ctx, connect.NewRequest(&skeinv1.EraseUserRequest{UserIds: users[2*point : 2*point+2]}))
			if err == nil {
				op = res.Msg.GetOperation()
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}

		seen := map[string]bool{}
		for len(seen) <= point && !command.OperationEnded(op) {
			res, err := api.Admin().GetOperation(ctx, connect.NewRequest(&skeinv1.GetOperationRequest{OperationId: op.GetOperationId()}))
			if err != nil {
				t.Fatal(err)
			}
			op = res.Msg.GetOperation()
			seen[fmt.Sprint(op.GetState(), op.GetPhase(), op.GetDone())] = true
		}
		t.Logf("killed at point %d: %s, %s", point, op.GetState(), op.GetPhase())
		s.kill()
		if err := s.start(ctx); err != nil {
			t.Fatal(err)
		}
		if err := eventually(ctx, func(ctx context.Context) error {
			res, err := api.Admin().GetOperation(ctx, connect.NewRequest(&skeinv1.GetOperationRequest{OperationId: op.GetOperationId()}))
			if err == nil && res.Msg.GetOperation().GetState() != skeinv1.OperationState_OPERATION_STATE_SUCCEEDED {
				err = fmt.Errorf("the erasure is %v", res.Msg.GetOperation())
			}
			return err
		}); err != nil {
			t.Fatalf("after the kill at point %d: %v", point, err)
		}
	}

	res, err := api.Graph().ListFollowing(ctx, connect.NewRequest(&skeinv1.ListFollowingRequest{UserId: "ann", PageSize: 100}))
	if err != nil || len(res.Msg.GetEntries()) != 20 {
		t.Errorf("ann follows %d users, %v, expected 20", len(res.Msg.GetEntries()), err)
	}
	if err := s.stopInOrder(); err != nil {
		t.Error(err)
	}
	for _, user := range users {
		if found := conformance.FilesWith(t, s.dir, user); len(found) > 0 {
			t.Errorf("%s is still in %v", user, found)
		}
	}
}
