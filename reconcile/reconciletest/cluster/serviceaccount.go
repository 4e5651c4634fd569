package cluster

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ServiceAccount creates a service account in a namespace that may do there what the rules say and nothing else, and
// returns its configuration, without a client-side rate limit. It returns once the API server applies the rules.
func (c *Cluster) ServiceAccount(ctx context.Context, namespace string, rules ...rbacv1.PolicyRule) (*rest.Config,
	error) {
	return c.serviceAccount(ctx, namespace, namespace, rules,
		func(meta metav1.ObjectMeta, subject rbacv1.Subject) error {
			role, err := c.client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules},
				metav1.CreateOptions{})
			if err != nil {
				return err
			}
			_, err = c.client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: role.Name},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
				Subjects:   []rbacv1.Subject{subject},
			}, metav1.CreateOptions{})
			return err
		})
}

// ClusterServiceAccount is like [Cluster.ServiceAccount], but its rules hold in every namespace and for what is in
// none.
func (c *Cluster) ClusterServiceAccount(ctx context.Context, namespace string,
	rules ...rbacv1.PolicyRule) (*rest.Config, error) {
	return c.serviceAccount(ctx, namespace, metav1.NamespaceAll, rules,
		func(meta metav1.ObjectMeta, subject rbacv1.Subject) error {
			role, err := c.client.RbacV1().ClusterRoles().Create(ctx,
				&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules},
				metav1.CreateOptions{})
			if err != nil {
				return err
			}
			_, err = c.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: role.Name},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
				Subjects:   []rbacv1.Subject{subject},
			}, metav1.CreateOptions{})
			return err
		})
}

func (c *Cluster) serviceAccount(ctx context.Context, namespace, scope string, rules []rbacv1.PolicyRule,
	grant func(metav1.ObjectMeta, rbacv1.Subject) error,
) (*rest.Config, error) {
	fail := func(err error) (*rest.Config, error) {
		return nil, fmt.Errorf("create a service account in namespace %q: %w", namespace, err)
	}
	for _, rule := range rules {
		if len(rule.Verbs) == 0 || len(rule.Resources)+len(rule.NonResourceURLs) == 0 {
			return fail(fmt.Errorf("the rule %v names no verb, or nothing to use it on", rule))
		}
	}
	accounts := c.client.CoreV1().ServiceAccounts(namespace)
	account, err := accounts.Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		return fail(err)
	}
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account.Name}
	if err := grant(metav1.ObjectMeta{GenerateName: account.Name + "-"}, subject); err != nil {
		return fail(err)
	}
	hours := int64(24 * 60 * 60)
	token, err := accounts.CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours},
	}, metav1.CreateOptions{})
	if err != nil {
		return fail(err)
	}
	config := rest.AnonymousClientConfig(c.config)
	config.QPS = unlimited
	config.BearerToken = token.Status.Token
	if err := awaitRules(ctx, config, scope, rules); err != nil {
		return fail(err)
	}
	return config, nil
}

// awaitRules waits until the API server grants the first verb on the first resource of every rule: its authorizer
// learns of new roles from a watch, so a client that begins at once may be refused.
func awaitRules(ctx context.Context, config *rest.Config, scope string, rules []rbacv1.PolicyRule) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, rule := range rules {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: accessTo(rule, scope)}
		err := eventually(ctx, fmt.Sprintf("the rule %v holds", rule), func(ctx context.Context) (bool, error) {
			answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review,
				metav1.CreateOptions{})
			return err == nil && answer.Status.Allowed, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// accessTo is the question whether the first thing that a rule allows is allowed.
func accessTo(rule rbacv1.PolicyRule, namespace string) authorizationv1.SelfSubjectAccessReviewSpec {
	if len(rule.Resources) == 0 {
		return authorizationv1.SelfSubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{
				Path: rule.NonResourceURLs[0],
				Verb: rule.Verbs[0],
			},
		}
	}
	first := func(list []string) string {
		for _, one := range list {
			return one
		}
		return ""
	}
	resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
	return authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace:   namespace,
		Verb:        rule.Verbs[0],
		Group:       first(rule.APIGroups),
		Resource:    resource,
		Subresource: subresource,
		Name:        first(rule.ResourceNames),
	}}
}

// WriteKubeconfig writes a configuration for programs that take a --kubeconfig.
func WriteKubeconfig(path string, config *rest.Config) error {
	const name = "thermostat"
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {Server: config.Host,
			CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			Token:                 config.BearerToken,
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, path)
	if err != nil {
		return fmt.Errorf("write a kubeconfig: %w", err)
	}
	return nil
}
