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
	// playsTogether are the plays of a call, playConnections the calls that are under way at a time.
	playsTogether   = 100
	playConnections = 16
)

// ingestPlays measures plays a second through the whole service, from the first one sent until every projection shows the last one.
func ingestPlays(ctx context.Context, b *measure.Bench) error {
	users := max(100, b.Opts.Plays/20)
	row := b.Row("ingest-plays", fmt.Sprintf("plays until visible in every projection, %d connections × %d", playConnections, playsTogether),
		"plays/s", fmt.Sprintf("%d plays of %d items, by a power law, by %d users, on an empty server each time, over HTTP: each connection "+
			"sends Publish calls of %d plays, one after the other; each is answered when the log has fsynced, and the time ends when every "+
			"projection shows the last.", b.Opts.Plays, b.Opts.Items, users, playsTogether))
	publish := func(ctx context.Context) (measure.Measurement, error) {
		return ingestSkein(ctx, b, playCalls(b.Opts.Plays, users, b.Opts.Items), b.Opts.Plays)
	}
	if err := b.Alternate(ctx, row, measure.Contender{Name: measure.Skein, Measure: publish}); err != nil {
		return err
	}
	row.Compare(measure.Skein, "", 150_000, false)
	return nil
}

// playCalls are n plays as sequences of Publish calls, one for each connection. Items have plays by a power law.
func playCalls(n, users, items int) [][]*skeinv1.PublishRequest {
	r := rand.New(rand.NewPCG(12, 1))
	calls := make([][]*skeinv1.PublishRequest, playConnections)
	for i := 0; n > 0; i++ {
		call := &skeinv1.PublishRequest{}
		for ; n > 0 && len(call.Events) < playsTogether; n-- {
			call.Events = append(call.Events, &skeinv1.Event{Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{
				UserId: workload.UserID(uint32(r.IntN(users))), ItemId: strconv.Itoa(workload.FirstID + workload.PowerLaw(r, items, workload.PlaySkew)),
			}}})
		}
		calls[i%playConnections] = append(calls[i%playConnections], call)
	}
	return calls
}
