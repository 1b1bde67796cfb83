package main

import (
	"context"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type replayEraseCmd struct {
	clientFlags `embed:""`
	waitFlags   `embed:""`

	User string `arg:"" help:"Who is erased, for good."`
}

// Run starts the erasing of a user and waits for its end.
func (c *replayEraseCmd) Run(ctx context.Context, std *streams) error {
	res, err := call(ctx, &c.clientFlags, c.client().admin().EraseUser, &skeinv1.EraseUserRequest{UserId: c.User})
	if err != nil {
		return err
	}
	return c.follow(ctx, &c.clientFlags, std, res.GetOperation())
}
