package cluster

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

const progressEvery = 5 * time.Second

// runWithProgress runs a "go build -v" of that many packages, 0 if that is unknown, and shows that it is alive. The
// command writes a line for each package that it compiles, and one for each module that it downloads; what else it
// writes is shown if it fails.
func runWithProgress(command *exec.Cmd, all int, log io.Writer) error {
	output, err := command.StderrPipe()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := command.Start(); err != nil {
		return fmt.Errorf("start the go command, which has to be in the PATH: %w", err)
	}
	lines := make(chan string)
	go func() { // ends when the command has closed its output, which is when the loop below ends
		defer close(lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()

	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	var packages, modules int
	var rest []string
	of := ""
	if all > 0 {
		of = fmt.Sprintf(" of about %d", all)
	}
	show := func() {
		fmt.Fprintf(log, "cluster: %4.0f s, %d modules downloaded, %d%s packages compiled\n",
			time.Since(began).Seconds(), modules, packages, of)
	}
	for open := true; open; {
		var line string
		select {
		case <-tick.C:
			show()
		case line, open = <-lines:
			switch {
			case !open:
			case strings.HasPrefix(line, "go: downloading "):
				modules++
			case strings.ContainsAny(line, " \t"):
				rest = append(rest, line)
			default:
				packages++
			}
		}
	}
	if err := command.Wait(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(command.Args, " "), err, strings.Join(rest, "\n"))
	}
	show()
	return nil
}
