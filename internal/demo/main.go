// Command demo builds the parts of the demo and starts it: "make demo" runs it. The acts are in package story; package
// memory has the stage in memory, and package real the one on a real control plane.
//
// It imports nothing but the standard library, and of that no network, so that go run compiles it in seconds and the
// first line is there at once.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const module = "github.com/thermostat-go/thermostat/"

// built is where the programs are kept. A second demo builds only what has changed.
var built = filepath.Join(".build", "demo")

func main() {
	keep := flag.Bool("keep", false, "stay up at the end until Ctrl-C, for kubectl")
	real := flag.Bool("real", false, "use a real control plane in the place of the API server in memory")
	builtin := flag.Bool("builtin", false, "with -real: leave Deployments to Kubernetes' own controller")
	flag.Parse()
	fmt.Fprintln(os.Stderr, "demo:", run(*keep, *real, *builtin, flag.Args()))
	os.Exit(1)
}

func run(keep, real, builtin bool, rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q: there are only flags, see -help", rest[0])
	case builtin && !real:
		return errors.New("-builtin needs -real: the API server in memory has no Deployment controller of its own")
	}
	stage := "memory"
	if real {
		stage = "real"
		fmt.Println("The first use of the real control plane compiles etcd, kube-apiserver and " +
			"kube-controller-manager, which\ntakes about six minutes on two idle cores. That happens once: they " +
			"stay in " +
			"the user's cache.")
	}
	fmt.Println("Building the demo and our controllers; on a machine that has not compiled them before this takes " +
		"about a minute ...")
	err := build("internal/demo/"+stage, "examples/autoscaler", "examples/deployment", "examples/replicaset")
	if err != nil {
		return err
	}
	program := filepath.Join(built, stage)
	args := []string{program, "-programs", built}
	for name, set := range map[string]bool{"-keep": keep, "-builtin": builtin} {
		if set {
			args = append(args, name)
		}
	}
	// The demo takes the place of this process, so that signals reach it.
	return fmt.Errorf("start %s: %w", program, syscall.Exec(program, args, os.Environ()))
}

// build compiles programs, and says every few seconds how far it is.
func build(programs ...string) error {
	began := time.Now()
	args := []string{"build", "-v", "-o", built + string(filepath.Separator)}
	for _, program := range programs {
		args = append(args, module+program)
	}
	if err := os.MkdirAll(built, 0o755); err != nil {
		return err
	}
	command := exec.Command("go", args...)
	output, err := command.StderrPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	compiled, said := follow(output, began)
	if err := command.Wait(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, said)
	}
	fmt.Printf("Built after %.0f s: %d packages compiled.\n", time.Since(began).Seconds(), compiled)
	return nil
}

const pace = 5 * time.Second

// follow reads what go build prints: the path of each package that it has compiled, and errors, which it returns.
func follow(output io.Reader, began time.Time) (compiled int, said string) {
	last := began
	for lines := bufio.NewScanner(output); lines.Scan(); {
		line := lines.Text()
		if strings.ContainsAny(line, " \t#") {
			said += line + "\n"
			continue
		}
		if compiled++; time.Since(last) >= pace {
			last = time.Now()
			fmt.Printf("      %3.0f s, %d packages compiled: %s\n", time.Since(began).Seconds(), compiled, line)
		}
	}
	return compiled, said
}
