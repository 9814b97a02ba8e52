/* The cluster's own certificate authority: X.509 v3, ECDSA on P-256 with SHA-256 (grpcio's BoringSSL takes no Ed25519). Files are
 * made whole or not at all, and none is ever overwritten.
 *
 *	DIR/            0700  certificate_make_ca
 *	    ca.crt      0644
 *	    ca.key      0600  stays here
 *	    NODE/       0700  certificate_make_node: what is copied to the node
 *	        ca.crt node.crt 0644, node.key 0600
 */
#ifndef TR_CLIENT_TRAINCTL_CERTIFICATE_H
#define TR_CLIENT_TRAINCTL_CERTIFICATE_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define CERTIFICATE_CA_DAYS       3650
#define CERTIFICATE_NODE_DAYS     730
#define CERTIFICATE_DAYS_MAX      36500
#define CERTIFICATE_ADDRESSES_MAX 64

struct certificate_made {
	char folder[PATH_MAX]; /* in which the files are */
	char expires[32];      /* "2028-11-21" */
};

/* Makes `folder` (its parents too) with a new CA. TR_EEXIST: there is one. */
tr_status certificate_make_ca(const char *folder, struct certificate_made *made,
    struct tr_error *error);

/* Makes `ca_folder`/`node`, signed by the CA of `ca_folder`. The certificate is for the names `node` and localhost, the loopback addresses and
 * `addresses` (host names or IP addresses); it is valid for `days`, and no longer than the CA's. TR_EINVAL: a name or an address that
 * cannot be one; TR_ENOTFOUND: no CA there; TR_EEXIST: that node has a certificate. */
tr_status certificate_make_node(const char *ca_folder, const char *node,
    const char *const *addresses, size_t count, uint64_t days, struct certificate_made *made,
    struct tr_error *error);

#endif
