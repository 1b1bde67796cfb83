package statuscmd

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
)

// Control sequences of a terminal.
const (
	// enterAlternateScreen switches to a second screen and hides the cursor. leaveAlternateScreen
	// switches back, so that the terminal shows again what was there before.
	enterAlternateScreen = "\x1b[?1049h\x1b[?25l"
	leaveAlternateScreen = "\x1b[?25h\x1b[?1049l"
	moveToTopLeft        = "\x1b[H"
	clearToEndOfLine     = "\x1b[K"
	clearToEndOfScreen   = "\x1b[J"
)

// minWatchPeriod is the least value of --every.
const minWatchPeriod = 100 * time.Millisecond

// watch shows what the service is doing until ctx ends, or --count times. On a terminal, each
// update replaces the one before; elsewhere, the updates follow each other. The figures come from
// the metrics of the service, so they agree with a dashboard, and callers need only the permission
// to read.
func (c *Cmd) watch(ctx context.Context, std *command.Streams) error {
	if c.Every < minWatchPeriod {
		return command.Usagef("--every must be at least %v, is %v", minWatchPeriod, c.Every)
	}

	show := func(text string) error { return printBlock(std.Out, text) }
	if terminal, ok := std.Out.(*os.File); ok && term.IsTerminal(int(terminal.Fd())) {
		_, _ = io.WriteString(std.Out, enterAlternateScreen)
		defer func() { _, _ = io.WriteString(std.Out, leaveAlternateScreen) }()
		show = func(text string) error { return redrawTerminal(std.Out, terminal, text) }
	}

	client := c.Client()
	scrape := func() (*MetricsReading, error) {
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		return Scrape(ctx, client)
	}
	last, err := scrape()
	if err != nil {
		return err
	}

	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}

		reading, err := scrape()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			// The service may be restarting, so try again at the next update.
			err = show("no answer at " + time.Now().Format(time.TimeOnly) + ": " + command.Explain(err) + "\n")
		} else {
			err = show(Screen(client.URL, last, reading))
			last = reading
		}
		if err != nil || n == c.Count {
			return err
		}
	}
}

// printBlock prints an update and an empty line.
func printBlock(w io.Writer, text string) error {
	_, err := io.WriteString(w, text+"\n")
	return err
}

// redrawTerminal replaces what the terminal shows by the text, cut to the size of the terminal. It
// overwrites line by line, because a terminal that is cleared first flickers.
func redrawTerminal(w io.Writer, terminal *os.File, text string) error {
	width, height, err := term.GetSize(int(terminal.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}

	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	var b strings.Builder
	b.WriteString(moveToTopLeft)
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		if r := []rune(line); len(r) > width {
			line = string(r[:width])
		}
		b.WriteString(line + clearToEndOfLine)
	}
	b.WriteString(clearToEndOfScreen)
	_, err = io.WriteString(w, b.String())
	return err
}
