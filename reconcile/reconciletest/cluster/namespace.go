package cluster

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Namespace creates a namespace that is the test's own and goes with it.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	name, err := c.CreateNamespace(t.Context(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.private {
			return // the cluster goes, too; and its API server may be down by now
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete the namespace of the test: %v", err)
		}
	})
	return name
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// CreateNamespace creates a namespace whose name begins with hint, as far as names allow, and waits until pods may be
// created in it: they need its default service account.
func (c *Cluster) CreateNamespace(ctx context.Context, hint string) (string, error) {
	prefix := strings.Trim(notInName.ReplaceAllString(strings.ToLower(hint), "-"), "-")
	prefix = strings.Trim(prefix[:min(len(prefix), 40)], "-") + "-"
	namespace, err := c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "t-" + prefix},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create a namespace for %s: %w", hint, err)
	}
	err = eventually(ctx, "namespace "+namespace.Name+" has its default service account",
		func(ctx context.Context) (bool, error) {
			_, err := c.client.CoreV1().ServiceAccounts(namespace.Name).Get(ctx, "default", metav1.GetOptions{})
			return err == nil, err
		})
	return namespace.Name, err
}
