package programs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
)

// Cores divide the processor between the measured service and its client, so that neither waits for the other. They are
// lists of cores as taskset(1) takes them.
type Cores struct{ Service, Client string }

// DivideCores gives the first half of the cores to the service and the rest to the client. It returns nil where that cannot
// be done: on a machine of one core, and where there is no taskset. Cores are numbered from 0.
func DivideCores() *Cores {
	n := runtime.NumCPU()
	if _, err := exec.LookPath("taskset"); err != nil || n < 2 {
		return nil
	}
	return &Cores{Service: fmt.Sprintf("0-%d", n/2-1), Client: fmt.Sprintf("%d-%d", n/2, n-1)}
}

// extraProcs are enough for the pacers of calls and of writes.
const extraProcs = 4

// ConfineToClient keeps this process on the client's cores until the returned function is called.
func (c *Cores) ConfineToClient(ctx context.Context) (release func() error, err error) {
	confine := func(ctx context.Context, cores string) error {
		cmd := exec.CommandContext(ctx, "taskset", "--all-tasks", "--cpu-list", "--pid", cores, strconv.Itoa(os.Getpid()))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("taskset: %w: %s", err, out)
		}
		return nil
	}
	all := runtime.NumCPU()
	if err := confine(ctx, c.Client); err != nil {
		return nil, err
	}
	// The pacer of an open loop waits in the system, and holds a processor of the runtime until that notices, up to 10 ms later:
	// there are others for the calls.
	before := runtime.GOMAXPROCS(all - all/2 + extraProcs)
	return func() error {
		runtime.GOMAXPROCS(before)
		return confine(context.WithoutCancel(ctx), fmt.Sprintf("0-%d", all-1))
	}, nil
}
