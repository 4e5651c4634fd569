package processnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// Program is an image with one program.
func Program(path string) Image { return Image{Programs: map[string]string{filepath.Base(path): path}} }

// BuildPackage builds a main package of the module in the current folder, such as "./cmd/operator", and returns an
// image with this program. The program's file is made in dir.
func BuildPackage(ctx context.Context, dir, pkg string) (Image, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Image{}, err
	}
	list := exec.CommandContext(ctx, "go", "list", "-f", "{{.Name}} {{.ImportPath}}", pkg)
	listed, err := list.Output()
	if err != nil {
		return Image{}, fmt.Errorf("go list %s: %w%s", pkg, err, stderrOf(err))
	}
	kind, name, _ := strings.Cut(strings.TrimSpace(string(listed)), " ")
	if kind != "main" {
		return Image{}, fmt.Errorf("build %s: package %s is no main package", pkg, kind)
	}
	program := filepath.Join(dir, path.Base(name))
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, pkg).CombinedOutput(); err != nil {
		return Image{}, fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return Program(program), nil
}

func stderrOf(err error) string {
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return "\n" + string(failed.Stderr)
	}
	return ""
}

// BuildModules returns an image with programs of published modules, which [cluster.BuildPrograms] builds once on this
// machine: it describes the map and log. The entrypoint is one of the names.
func BuildModules(ctx context.Context, log io.Writer, entrypoint string, programs map[string]string) (Image, error) {
	if programs[entrypoint] == "" {
		return Image{}, fmt.Errorf("build an image: its entrypoint %q is none of its programs", entrypoint)
	}
	dir, err := cluster.BuildPrograms(ctx, log, programs)
	if err != nil {
		return Image{}, err
	}
	image := Image{Programs: map[string]string{}, Entrypoint: []string{entrypoint}}
	for name := range programs {
		image.Programs[name] = filepath.Join(dir, name)
	}
	return image, nil
}

func (i Image) check() error {
	if len(i.Programs) == 0 {
		return errors.New("it has no programs")
	}
	for name, program := range i.Programs {
		info, err := os.Stat(program)
		switch {
		case err != nil:
			return fmt.Errorf("program %q: %w", name, err)
		case !filepath.IsAbs(program) || strings.Contains(program, "="):
			return fmt.Errorf("program %q: %s is not absolute, or has a = in it", name, program)
		case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
			return fmt.Errorf("program %q: %s is no executable file", name, program)
		}
	}
	if len(i.Entrypoint) > 0 {
		_, err := i.program(i.Entrypoint[0])
		return err
	}
	return nil
}

// program returns the file of the program that a command names.
func (i Image) program(command string) (string, error) {
	if program, ok := i.Programs[path.Base(command)]; ok {
		return program, nil
	}
	return "", fmt.Errorf("exec: %q: the image has only the programs %s", command,
		strings.Join(slices.Sorted(maps.Keys(i.Programs)), ", "))
}

// command returns the words of a container's command and arguments.
func (i Image) command(command, args []string) ([]string, error) {
	if len(command) > 0 {
		return slices.Concat(command, args), nil
	}
	if len(i.Entrypoint) > 0 {
		return slices.Concat(i.Entrypoint, args), nil
	}
	if len(i.Programs) > 1 {
		return nil, errors.New("the container has no command, and the image several programs and no entrypoint")
	}
	for name := range i.Programs {
		return append([]string{name}, args...), nil
	}
	return nil, errors.New("the image has no programs")
}
