package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// versionVariable names the version of Kubernetes of all clusters whose Options name none.
const versionVariable = "THERMOSTAT_KUBERNETES"

// release is a version of Kubernetes that the sources can be built with: a go.mod with its go.sum. The Go code is the
// same for all.
type release struct {
	version  string // v1.34.4
	minor    int    // 34
	mod, sum string // the files of a source that become its go.mod and go.sum
}

func (r release) String() string { return fmt.Sprintf("1.%d (%s)", r.minor, r.version) }

// releaseOf returns the release that Options.Version names, or else the environment, or else the newest.
func releaseOf(source fs.FS, version string) (release, error) {
	from := "Options.Version"
	if version == "" {
		from, version = versionVariable, os.Getenv(versionVariable)
	}
	r, err := choose(source, version)
	if err != nil {
		return release{}, fmt.Errorf("%s: %w", from, err)
	}
	return r, nil
}

// choose returns the release of a minor version, such as "1.34" or "v1.34"; "" is the newest.
func choose(source fs.FS, version string) (release, error) {
	all, err := releases(source)
	if err != nil {
		return release{}, err
	}
	if version == "" {
		return all[0], nil
	}
	var have []string
	for _, r := range all {
		if strings.TrimPrefix(version, "v") == fmt.Sprintf("1.%d", r.minor) {
			return r, nil
		}
		have = append(have, r.String())
	}
	return release{}, fmt.Errorf("there is no Kubernetes %q here; name one of these minor versions: %s", version,
		strings.Join(have, ", "))
}

var requiredKubernetes = regexp.MustCompile(`k8s\.io/kubernetes (v1\.(\d+)\.\S+)`)

// releases are those that a source has, the newest first. That one has the go.mod, an older one a file like
// kubernetes-1.34.mod.
func releases(source fs.FS) ([]release, error) {
	older, err := fs.Glob(source, "kubernetes-*.mod.txt")
	if err != nil {
		return nil, err
	}
	var all []release
	for _, file := range append(older, "go.mod.txt") {
		content, err := fs.ReadFile(source, file)
		if err != nil {
			return nil, fmt.Errorf("read the sources of the control plane: %w", err)
		}
		match := requiredKubernetes.FindSubmatch(content)
		if match == nil {
			return nil, errors.New("the control plane's " + file + " requires no version of k8s.io/kubernetes")
		}
		minor, err := strconv.Atoi(string(match[2]))
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(file, ".mod.txt")
		all = append(all, release{version: string(match[1]), minor: minor, mod: name + ".mod", sum: name + ".sum"})
	}
	slices.SortFunc(all, func(a, b release) int { return b.minor - a.minor })
	return all, nil
}

// fileName returns the name under which a file of a source is compiled, and false if it belongs to another release.
func (r release) fileName(name string) (string, bool) {
	switch {
	case name == r.mod:
		return "go.mod", true
	case name == r.sum:
		return "go.sum", true
	default:
		return name, path.Ext(name) != ".mod" && path.Ext(name) != ".sum"
	}
}

// linkerFlags have the API server report its version: kubectl refuses one that has none.
func (r release) linkerFlags() string {
	const variable = " -X k8s.io/component-base/version."
	return fmt.Sprintf("-s -w"+variable+"gitVersion=%s"+variable+"gitMajor=1"+variable+"gitMinor=%d"+variable+
		"gitTreeState=clean", r.version, r.minor)
}
