package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// lookAround is a program that knows no other way to the cluster than that of a pod, and looks for others.
func lookAround() error {
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	namespace, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return err
	}
	_, err = kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(string(namespace)).Create(context.Background(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "made"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if _, err := net.Dial("tcp", os.Getenv(elsewhere)); err == nil {
		return errors.New("something else than the fork answers")
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	if _, err := http.Get(server.URL); err != nil {
		return fmt.Errorf("its own server does not answer: %w", err)
	}
	if os.Getenv("HTTPS_PROXY")+os.Getenv("SSH_AUTH_SOCK") != "" {
		return errors.New("its environment leads out")
	}
	if entries, err := os.ReadDir("/var/run"); err != nil || len(entries) != 1 {
		return fmt.Errorf("/var/run has %v: %w", entries, err)
	}
	if err := syscall.Mount("", "/var/run", "tmpfs", 0, ""); err == nil {
		return errors.New("it may mount")
	}
	fmt.Println("user", os.Getuid())
	return nil
}

// mayIsolate reports whether the kernel lets this process make the namespaces, and mount in them.
func mayIsolate() bool {
	c := exec.Command("mount", "-t", "tmpfs", "none", "/tmp")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}}
	return c.Run() == nil
}

// TestAnIsolatedProgramFindsNothingButTheFork also is for machines on which nobody may make namespaces.
func TestAnIsolatedProgramFindsNothingButTheFork(t *testing.T) {
	server, _, cluster := newCluster(t)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	t.Setenv(elsewhere, other.Listener.Addr().String())
	t.Setenv(asProgram, "looks around")
	t.Setenv("HTTPS_PROXY", "http://10.0.0.1:3128")
	t.Setenv("SSH_AUTH_SOCK", "/tmp/agent")
	written := server.Version()
	var out, errOut bytes.Buffer
	code, err := run(t.Context(), []string{"-kubeconfig", cluster, "-isolated", "-quiet", "5s", "--", os.Args[0]},
		&out, &errOut)
	if err != nil && strings.Contains(err.Error(), "may not make namespaces") {
		require.False(t, mayIsolate(), err)
		require.ErrorContains(t, err, "user.max_user_namespaces", "it says what to do")
		return
	}
	require.NoError(t, err, errOut.String())
	require.Equal(t, 2, code)
	require.Contains(t, out.String(), "create ConfigMap default/made")
	require.Contains(t, errOut.String(), fmt.Sprint("user ", os.Getuid()))
	require.NotContains(t, out.String(), "nobody has looked", "it could reach nothing else")
	require.Equal(t, written, server.Version())

	noProgram := filepath.Join(t.TempDir(), "program")
	for program, why := range map[string]string{"/no/such/program": "no such file", noProgram: "exec format error"} {
		require.NoError(t, os.WriteFile(noProgram, []byte("no program"), 0o755))
		_, err = run(t.Context(), []string{"-kubeconfig", cluster, "-isolated", "--", program}, &out, &errOut)
		require.ErrorContains(t, err, why)
	}
}

func TestWhatAProgramWasConnectedToIsNamed(t *testing.T) {
	_, _, cluster := newCluster(t)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	address := other.Listener.Addr().String()
	t.Setenv(elsewhere, address)
	for does, connected := range map[string]bool{"goes elsewhere": true, "reads": false} {
		t.Setenv(asProgram, does)
		var out strings.Builder
		code, err := run(t.Context(), []string{"-kubeconfig", cluster, "-quiet", "5s", "--", os.Args[0]}, &out, &out)
		require.Equal(t, connected, err != nil, out.String())
		require.Equal(t, connected, code == failed)
		require.Equal(t, connected, strings.Contains(out.String(), "\n  "+address+"\n"), out.String())
		require.NotContains(t, out.String(), "nobody has looked")
	}
}
