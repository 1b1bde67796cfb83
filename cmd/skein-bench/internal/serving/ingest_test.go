package serving

import (
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
)

// TestPipelinesHaveFollowsOfGraphInTurn checks that the follows in the pipelines of Redis are found
// in the graph by the start of their pipeline, so that each follow is written with its own time.
func TestPipelinesHaveFollowsOfGraphInTurn(t *testing.T) {
	const edges = 3*ingestPipeline*ingestConnections + ingestPipeline/2
	g := workload.NewGraph(100, edges, 1)
	found := 0
	for conn, pipelines := range splitIntoPipelines(g) {
		for i, follows := range pipelines {
			for k, e := range follows {
				if want := g.Edges[pipelineStart(conn, i)+k]; e != want {
					t.Errorf("follow %d of pipeline %d of connection %d: got %v, want %v", k, i, conn, e, want)
				}
				found++
			}
		}
	}
	if found != edges {
		t.Errorf("follows in all pipelines: got %d, want %d", found, edges)
	}
}
