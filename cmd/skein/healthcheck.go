package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
)

type healthcheckCmd struct {
	command.ClientFlags `embed:""`

	Alive   bool `help:"Ask only whether the process answers (/healthz), not whether it has caught up with the log (/readyz)." xor:"what"`
	Healthy bool `help:"Like --alive, but also fail if there are problems that an operator must solve, for example if the log cannot be archived." xor:"what"`
}

// Help is shown below the flags.
func (*healthcheckCmd) Help() string {
	return `For containers, which have no shell and no curl. The exit code is 0 if the service is ready, and 1 if it is not or does not
answer. The command needs no token. If the certificate of the service is not for this address, give --server the name in the certificate.`
}

// maxHealthBytes is how much of an answer is read. An answer has a line for each projection.
const maxHealthBytes = 64 << 10

// Run asks the service once.
func (c *healthcheckCmd) Run(ctx context.Context, std *command.Streams) (err error) {
	path := "/readyz"
	if c.Alive || c.Healthy {
		path = "/healthz"
	}

	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	client := c.Client()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, client.URL+path, nil)
	if err != nil {
		return command.Usagef("--server: %w", err)
	}
	res, err := client.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxHealthBytes))
	if err != nil {
		return err
	}

	fmt.Fprintln(std.Out, strings.TrimSpace(string(text)))
	if res.StatusCode != http.StatusOK {
		std.Sayf("skein: %s: %s", path, res.Status)
		return command.ErrSilent
	}
	if !c.Healthy {
		return nil
	}

	var answer struct {
		Problems []string `json:"problems"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(answer.Problems) > 0 {
		std.Sayf("skein: %s", strings.Join(answer.Problems, "; "))
		return command.ErrSilent
	}
	return nil
}
