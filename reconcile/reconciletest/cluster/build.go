package cluster

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// BuildControlPlane brings the control plane up to date and returns the path of its binary. It tells log about it when
// that takes long. Any number of processes may call it at the same time: one compiles, the others wait.
func BuildControlPlane(ctx context.Context, log io.Writer) (binary string, err error) {
	return build(ctx, log, "controlplane", buildControlPlane)
}

// BuildNode does the same for the node stand-in, which is made of this repository's own library.
func BuildNode(ctx context.Context, log io.Writer) (binary string, err error) {
	return build(ctx, log, "standin", buildNode)
}

func build(ctx context.Context, log io.Writer, name string,
	with func(ctx context.Context, log io.Writer, root, binary string) error) (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".build")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	binary := filepath.Join(dir, name)
	unlock, err := lock(ctx, log, binary+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := with(ctx, log, root, binary); err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}
	return binary, nil
}

// buildControlPlane compiles only if the sources differ from those that the binary was made of. Asking the go command
// instead would take seconds for 2,200 packages, in each test binary.
func buildControlPlane(ctx context.Context, log io.Writer, root, binary string) error {
	source := filepath.Join(root, "internal", "controlplane")
	flags, err := versionFlags(filepath.Join(source, "go.mod"))
	if err != nil {
		return err
	}
	want, err := fingerprint(source, flags)
	if err != nil {
		return err
	}
	note := binary + ".sha256"
	have, _ := os.ReadFile(note) // missing: not built yet
	if _, err := os.Stat(binary); err == nil && string(have) == want {
		return nil
	}

	// Running clusters keep the old file: it is replaced, not overwritten. The note goes first and comes last, so it
	// never vouches for the wrong binary.
	fresh := binary + ".new"
	fmt.Fprintf(log, "testcluster: compiling etcd, kube-apiserver and kube-controller-manager; the first time this "+
		"takes several minutes\n")
	command := exec.CommandContext(ctx, "go", "build", "-v", "-ldflags", flags, "-o", fresh, ".")
	command.Dir = source
	command.Env = append(os.Environ(), "GOWORK=off")
	if err := runWithProgress(command, log); err != nil {
		return err
	}
	if err := os.RemoveAll(note); err != nil {
		return err
	}
	if err := os.Rename(fresh, binary); err != nil {
		return err
	}
	return os.WriteFile(note, []byte(want), 0o644)
}

// buildNode leaves the question of what changed to the go command, which answers it quickly for a small program.
func buildNode(ctx context.Context, _ io.Writer, root, binary string) error {
	command := exec.CommandContext(ctx, "go", "build", "-o", binary, "./internal/standin")
	command.Dir = root
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./internal/standin: %w\n%s", err, output)
	}
	return nil
}

// versionFlags has the linker set the version that the API server reports: kubectl refuses one that has none.
func versionFlags(gomod string) (string, error) {
	content, err := os.ReadFile(gomod)
	if err != nil {
		return "", err
	}
	match := regexp.MustCompile(`k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)`).FindSubmatch(content)
	if match == nil {
		return "", fmt.Errorf("%s requires no version of k8s.io/kubernetes", gomod)
	}
	const variable = " -X k8s.io/component-base/version."
	return fmt.Sprintf("-s -w"+variable+"gitVersion=%s"+variable+"gitMajor=%s"+variable+"gitMinor=%s"+variable+
		"gitTreeState=clean",
		match[1], match[2], match[3]), nil
}

// fingerprint is a hash of all that the binary depends on: the go.sum stands for the modules.
func fingerprint(source, flags string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOOS, runtime.GOARCH, flags)
	err := filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name := entry.Name()
		isSource := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
		if !isSource && name != "go.mod" && name != "go.sum" {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		fmt.Fprintln(hash, relative, len(content))
		hash.Write(content)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read the sources: %w", err)
	}
	return fmt.Sprintf("%x\n", hash.Sum(nil)), nil
}
