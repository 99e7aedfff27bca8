#include "wrapper.h"

#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

int weir_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int n)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, n);
}

int weir_linearize(struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_linearize(mbuf);
}

int weir_errno(void)
{
	return rte_errno;
}

int weir_link(uint16_t port, uint32_t *speed)
{
	struct rte_eth_link link;
	int status = rte_eth_link_get_nowait(port, &link);

	*speed = 0;
	if (status < 0)
		return status;
	if (link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN)
		*speed = link.link_speed;
	return link.link_status == RTE_ETH_LINK_UP;
}

/* Exported for drivers, whose header (ethdev_driver.h) Debian does not install. */
struct rte_eth_dev;
struct rte_eth_dev *rte_eth_dev_allocated(const char *name);
int rte_eth_dev_callback_process(struct rte_eth_dev *device, enum rte_eth_event_type event,
				 void *argument);

void weir_raise(uint16_t port, bool reset, bool removed)
{
	char name[RTE_ETH_NAME_MAX_LEN];
	struct rte_eth_dev *device;

	if (rte_eth_dev_get_name_by_port(port, name) != 0)
		return;
	device = rte_eth_dev_allocated(name);
	if (device && reset)
		rte_eth_dev_callback_process(device, RTE_ETH_EVENT_INTR_RESET, NULL);
	if (device && removed)
		rte_eth_dev_callback_process(device, RTE_ETH_EVENT_INTR_RMV, NULL);
}

uint32_t weir_pool_size(const struct rte_mempool *pool)
{
	return pool->size;
}

const char *weir_version(void)
{
	return rte_version();
}

int weir_interface_mtu(unsigned int index, char name[16])
{
	struct ifreq request;
	int socket_fd, status;

	_Static_assert(IF_NAMESIZE == 16, "interface names");
	if (!if_indextoname(index, name))
		return -errno;
	socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (socket_fd < 0)
		return -errno;
	memset(&request, 0, sizeof request);
	memcpy(request.ifr_name, name, IF_NAMESIZE);
	status = ioctl(socket_fd, SIOCGIFMTU, &request) < 0 ? -errno : request.ifr_mtu;
	close(socket_fd);
	return status;
}
