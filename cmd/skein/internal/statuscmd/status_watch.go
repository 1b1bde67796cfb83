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

// Sequences of a terminal.
const (
	enterAlternateScreen = "\x1b[?1049h\x1b[?25l" // without a cursor
	leaveAlternateScreen = "\x1b[?25h\x1b[?1049l"
	moveToTopLeft        = "\x1b[H"
	clearToEndOfLine     = "\x1b[K"
	clearToEndOfScreen   = "\x1b[J"
)

// watch shows the metrics of the service until the context ends, or for the given number of times. A terminal shows them in one place;
// elsewhere each reading follows the last. They come from the page of metrics. So they are the same as on a dashboard, and the permission
// to read is enough.
func (c *Cmd) watch(ctx context.Context, std *command.Streams) error {
	if c.Every < 100*time.Millisecond {
		return command.Usagef("--every must be at least 100ms, is %v", c.Every)
	}
	out, show := std.Out, printBlock
	if f, ok := std.Out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		_, _ = io.WriteString(out, enterAlternateScreen)
		defer func() { _, _ = io.WriteString(out, leaveAlternateScreen) }()
		show = func(w io.Writer, text string) error { return redrawTerminal(w, f, text) }
	}
	api := c.Client()
	ask := func() (*MetricsReading, error) {
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		return Scrape(ctx, api)
	}
	from, err := ask()
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
		to, err := ask()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil: // the service may be restarting
			err = show(out, "no answer at "+time.Now().Format(time.TimeOnly)+": "+command.Explain(err)+"\n")
		default:
			screen := Screen(api.URL, from, to)
			err, from = show(out, screen), to
		}
		if err != nil || n == c.Count {
			return err
		}
	}
}

func printBlock(w io.Writer, text string) error {
	_, err := io.WriteString(w, text+"\n")
	return err
}

// redrawTerminal draws over the last screen, and cuts the text to the size of the terminal.
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
