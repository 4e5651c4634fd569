package main

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// BenchmarkControllerManager runs a whole kube-controller-manager for a minute, on a control plane whose pods all run
// and which its controllers leave as it is: with client-go's informers, or those of package clientgo with Wire. Both
// sides are the same binary, and end with the same objects in their caches.
func BenchmarkControllerManager(b *testing.B) {
	program := buildControllerManager(b)
	c := cluster.New(b, cluster.Options{})
	fill(b, c)
	must(b, c.Kill(b.Context(), cluster.ControllerManager))
	var other managerReport
	for _, side := range []struct{ name, flag string }{
		{"thermostat", "--wired=true"},
		{clientGo, "--wired=false"},
	} {
		b.Run(side.name, func(b *testing.B) {
			r := runControllerManager(b, c, program, side.flag)
			b.ReportMetric(r.CPU, "cpu-sec/op")
			b.ReportMetric(r.RSS, "rest-B/op")
			b.ReportMetric(r.Peak, "peak-B/op")
			b.ReportMetric(r.Heap, "heap-B/op")
			b.ReportMetric(r.Synced, "synced-sec/op")
			b.ReportMetric(float64(len(r.Objects)), "informers/op")
			if r.Objects["*v1.Pod"] != managedPods {
				b.Fatalf("%d pods are cached: %v", r.Objects["*v1.Pod"], r.Objects)
			}
			same := maps.Equal(r.Objects, other.Objects) && slices.Equal(r.Unsynced, other.Unsynced)
			if other.Objects != nil && !same {
				b.Fatalf("%s has cached %v, but for %v, the other side %v, but for %v", side.name, r.Objects,
					r.Unsynced, other.Objects, other.Unsynced)
			}
			other = r
		})
	}
}

// managerReport is what the program says of its run.
type managerReport struct {
	CPU, Synced     float64 // seconds
	RSS, Peak, Heap float64 // bytes
	Objects         map[string]int
	Unsynced        []string
}

// runControllerManager runs the program with the flags that the control plane gives its own controller manager.
func runControllerManager(b *testing.B, c *cluster.Cluster, program, side string) (r managerReport) {
	in := func(path ...string) string { return filepath.Join(append([]string{c.Dir()}, path...)...) }
	kubeconfig, report := in("controller-manager.kubeconfig"), in("report.json")
	p, err := c.Run(b.Context(), cluster.Command{Name: "manager", Path: program, Args: []string{
		side, "--report=" + report, "--",
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--secure-port=0",
		"--root-ca-file=" + in("pki", "ca.crt"),
		"--service-account-private-key-file=" + in("pki", "service-account.key"),
		"--cluster-signing-cert-file=" + in("pki", "ca.crt"),
		"--cluster-signing-key-file=" + in("pki", "ca.key"),
		"--use-service-account-credentials=true",
		"--leader-elect=false",
		"--flex-volume-plugin-dir=" + in("flexvolume"),
		"--kube-api-qps=200",
		"--kube-api-burst=400",
	}})
	must(b, err)
	status, err := p.Wait(b.Context())
	must(b, err)
	log, err := os.ReadFile(p.Log)
	must(b, err)
	if status != "exit status 0" {
		b.Fatalf("%s:\n%s", status, log[max(0, len(log)-4000):])
	}
	encoded, err := os.ReadFile(report)
	must(b, err)
	must(b, json.Unmarshal(encoded, &r))
	return r
}

// buildControllerManager builds the program, unless it was built in this run.
func buildControllerManager(b *testing.B) string {
	dir := os.Getenv(encodedEnv)
	if dir == "" {
		dir = b.TempDir()
	}
	program := filepath.Join(dir, "kube-controller-manager")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	const home = "controllermanager"
	goCommand := func(args ...string) string {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Stderr = home, os.Stderr
		out, err := cmd.Output()
		must(b, err)
		return strings.TrimSpace(string(out))
	}
	patched := filepath.Join(dir, "client-go")
	hookConstructor(b, goCommand("list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go"), patched)
	modfile := filepath.Join(dir, "controllermanager.mod")
	for _, kind := range []string{"mod", "sum"} {
		content, err := os.ReadFile(filepath.Join(home, "go."+kind))
		must(b, err)
		must(b, os.WriteFile(filepath.Join(dir, "controllermanager."+kind), content, 0o644))
	}
	root, err := filepath.Abs("../..")
	must(b, err)
	goCommand("mod", "edit", "-replace=k8s.io/client-go="+patched,
		"-replace=github.com/thermostat-go/thermostat="+root, modfile)
	// With -trimpath the go command finds in its cache what it has built of another copy.
	goCommand("build", "-trimpath", "-modfile="+modfile, "-o", program, ".")
	return program
}

// hookConstructor copies the module client-go, and makes the function by which all shared informers are made call a
// variable. A file of the module cache cannot be replaced by an overlay.
func hookConstructor(b *testing.B, from, to string) {
	must(b, os.CopyFS(to, os.DirFS(from)))
	path := filepath.Join(to, "tools", "cache", "shared_informer.go")
	source, err := os.ReadFile(path)
	must(b, err)
	const signature = "(lw ListerWatcher, exampleObject runtime.Object, options SharedIndexInformerOptions) " +
		"SharedIndexInformer {\n"
	const constructor = "func NewSharedIndexInformerWithOptions" + signature
	if n := strings.Count(string(source), constructor); n != 1 {
		b.Fatalf("%s has this %d times: %s", path, n, constructor)
	}
	hooked := strings.Replace(string(source), constructor, "var Constructor = newSharedIndexInformer\n\n"+constructor+
		"\treturn Constructor(lw, exampleObject, options)\n}\n\nfunc newSharedIndexInformer"+signature, 1)
	must(b, os.WriteFile(path, []byte(hooked), 0o644))
}
