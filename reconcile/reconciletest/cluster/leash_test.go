package cluster_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// A process that is killed with -9 takes its cluster with it, at whatever point of the start it is killed.
func TestKilledProcessLeavesNothingBehind(t *testing.T) {
	keepTheBuildOut(t)
	dir := temporary(t)
	for _, delay := range []time.Duration{50, 200, 500, 1000, 1500, 2000, 3000} {
		command := in(t, dir, exec.Command(os.Args[0]), startOnly+"=1")
		require.NoError(t, command.Start())
		time.Sleep(delay * time.Millisecond)
		require.NoError(t, command.Process.Kill())
		_ = command.Wait()
		requireNothingLeft(t, dir)
	}
}

// A stopped process can hear no signal but SIGKILL and reads no end of input.
func TestKilledProcessLeavesNoStoppedComponentBehind(t *testing.T) {
	keepTheBuildOut(t)
	dir := temporary(t)
	command := in(t, dir, exec.Command(os.Args[0]), startOnly+"=1")
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	kubeconfig, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.FileExists(t, strings.TrimSpace(kubeconfig))

	pgrep, err := exec.Command("pgrep", "-f", "controlplane apiserver .*"+dir).Output()
	require.NoError(t, err)
	require.NoError(t, exec.Command("kill", "-STOP", strings.TrimSpace(string(pgrep))).Run())
	require.NoError(t, command.Process.Kill())
	_ = command.Wait()
	requireNothingLeft(t, dir)
}

func TestUpIsForAPerson(t *testing.T) {
	programs, err := cluster.Assets(t.Context())
	require.NoError(t, err)
	binary := filepath.Join(programs, "controlplane")
	dir := temporary(t)
	kubeconfig := t.TempDir() + "/kubeconfig"
	up := func() (command *exec.Cmd, said string) {
		command = in(t, dir, exec.Command(binary, "up", "--kubeconfig", kubeconfig))
		out, err := command.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, command.Start())
		for lines := bufio.NewScanner(out); lines.Scan(); {
			said += lines.Text() + "\n"
			if strings.HasPrefix(lines.Text(), "Logs are in") {
				break
			}
		}
		return command, said
	}

	command, said := up()
	require.Contains(t, said, "export KUBECONFIG="+kubeconfig)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	require.True(t, within(time.Minute, func() bool {
		nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		return err == nil && len(nodes.Items) == 1
	}), "the node stand-in registers its node")
	require.NoError(t, command.Process.Signal(os.Interrupt))
	require.NoError(t, command.Wait(), "a Ctrl-C is the regular end")
	require.NoFileExists(t, kubeconfig)
	requireNothingLeft(t, dir)

	command, _ = up()
	require.NoError(t, command.Process.Signal(syscall.SIGKILL))
	require.Error(t, command.Wait())
	requireNothingLeft(t, dir)

	require.FileExists(t, kubeconfig, "nobody was left to remove it")
	command, _ = up()
	require.NoError(t, command.Process.Signal(syscall.SIGTERM))
	require.NoError(t, command.Wait(), "what it wrote itself it may write again")

	require.NoError(t, os.WriteFile(kubeconfig, []byte("apiVersion: v1\n"), 0o600))
	command, _ = up()
	require.Error(t, command.Wait(), "somebody else's kubeconfig is not written over")
	content, err := os.ReadFile(kubeconfig)
	require.NoError(t, err)
	require.Equal(t, "apiVersion: v1\n", string(content))
}

// keepTheBuildOut builds before a test measures.
func keepTheBuildOut(t *testing.T) {
	_, err := cluster.Assets(t.Context())
	require.NoError(t, err)
}
