package replaycmd

import (
	"context"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type eraseCmd struct {
	command.ClientFlags `embed:""`
	command.WaitFlags   `embed:""`

	User string `arg:"" help:"The user to erase, for good."`
}

// Run starts the erasure of a user and waits for its end.
func (c *eraseCmd) Run(ctx context.Context, std *command.Streams) error {
	res, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().EraseUser, &skeinv1.EraseUserRequest{UserId: c.User})
	if err != nil {
		return err
	}
	return c.Follow(ctx, &c.ClientFlags, std, res.GetOperation())
}
