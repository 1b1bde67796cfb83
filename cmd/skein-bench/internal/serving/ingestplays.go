package serving

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// playsPerCall is how many plays a call publishes.
	playsPerCall = 100
	// playConnections is how many connections publish at the same time.
	playConnections = 16
)

// ingestPlays measures how many plays per second are published, from the first call until every
// projection shows the last play.
func ingestPlays(ctx context.Context, b *measure.Bench) error {
	users := max(100, b.Opts.Plays/20)
	row := b.AddRow("ingest-plays", fmt.Sprintf("plays until visible in every projection, %d connections × %d", playConnections, playsPerCall),
		"plays/s", fmt.Sprintf("%d plays of %d items, by a power law, by %d users, on an empty server each time, over HTTP: each connection "+
			"sends Publish calls of %d plays, one after the other; each is answered when the log has fsynced, and the time ends when every "+
			"projection shows the last.", b.Opts.Plays, b.Opts.Items, users, playsPerCall))
	publish := func(ctx context.Context) (measure.Measurement, error) {
		return ingestSkein(ctx, b, playCalls(b.Opts.Plays, users, b.Opts.Items), b.Opts.Plays)
	}
	if err := b.MeasureInTurn(ctx, row, measure.Contender{Name: measure.Skein, Measure: publish}); err != nil {
		return err
	}
	row.Compare(measure.Skein, "", 150_000, false)
	return nil
}

// playCalls returns Publish calls of n plays in sequences, one for each connection. The items of
// the plays are drawn by a power law.
func playCalls(n, users, items int) [][]*skeinv1.PublishRequest {
	r := rand.New(rand.NewPCG(12, 1))
	calls := make([][]*skeinv1.PublishRequest, playConnections)
	for i := 0; n > 0; i++ {
		call := &skeinv1.PublishRequest{}
		for ; n > 0 && len(call.Events) < playsPerCall; n-- {
			call.Events = append(call.Events, &skeinv1.Event{Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{
				UserId: workload.UserID(uint32(r.IntN(users))),
				ItemId: strconv.Itoa(workload.FirstID + workload.PowerLaw(r, items, workload.PlaySkew)),
			}}})
		}
		calls[i%playConnections] = append(calls[i%playConnections], call)
	}
	return calls
}
